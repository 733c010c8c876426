"""The files: from which package, read by which tool, and compared with what. One more file is one more line."""

import json
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePath
from typing import Any

from tests.strangers import readings as by
from tests.strangers.checks import (
    Check,
    extracts,
    facts,
    facts_by,
    refuses,
    same_rows,
    same_text,
    same_tree,
    same_value,
    same_words,
    states,
)
from tests.strangers.packages import Package

_SERVERS = {
    "extract_csv_content": "documents-csv-server",
    "extract_docx_content": "documents-docx-server",
    "extract_pptx_content": "documents-pptx-server",
    "convert_document_to_markdown": "documents-pdf-server",
    "extract_html_content": "documents-html-server",
    "extract_epub_content": "documents-epub-server",
    "extract_text_content": "documents-txt-server",
    "list_archive": "documents-zip-server",
    "extract_archive": "documents-zip-server",
    "extract_text_ocr": "media-image-server",
    "get_image_metadata": "media-image-server",
    "extract_audio_metadata": "media-audio-server",
    "transcribe_audio": "media-audio-server",
    "extract_keyframes": "media-video-server",
    "execute_command": "terminal-server",
}

_PROGRAMS = {
    "extract_text_ocr": ("tesseract",),
    "extract_audio_metadata": ("ffprobe",),
    "transcribe_audio": ("ffmpeg", "ffprobe"),
    "extract_keyframes": ("ffmpeg", "ffprobe"),
}


@dataclass(frozen=True)
class Stranger:
    """A file, and a call that reads it; an empty ``member`` means the package itself.

    ``whole``: later parts of a long result are read too. ``programs`` is what the tool needs for this file.
    """

    package: Package
    member: str
    tool: str
    check: Check
    arguments: dict[str, Any] = field(default_factory=dict)
    whole: bool = True
    programs: tuple[str, ...] = ()

    @property
    def needs(self) -> set[str]:
        """The programs that the tool or the other reading runs."""
        heic = {"heif-convert"} if self.kind in (".heic", ".heif") else set()
        return {*self.programs, *_PROGRAMS.get(self.tool, ()), *({self.check.program} - {""}), *heic}

    @property
    def server(self) -> str:
        return _SERVERS[self.tool]

    @property
    def kind(self) -> str:
        """The ending of its name."""
        name = PurePath(self.member or f"{self.package.name}.tar.gz")
        debian = self.package.source == "debian" and name.suffix == ".gz"
        endings = (name.with_suffix("") if debian else name).suffixes
        return "".join(endings[-2:] if endings[-2:-1] == [".tar"] else endings[-1:]).lower()

    @property
    def name(self) -> str:
        more = ",".join(f"{name}={value}" for name, value in self.arguments.items())
        return f"{self.package.name}/{self.member}:{self.tool}" + (f"({more})" if more else "")


AGATE = Package("agate-excel", "0.4.2", "eed1dc6239f0e96720d962dc1bdfb4496e19687332c827fd8b1e587a917ea202")
ALSA = Package(
    "alsa-utils", "1.2.8-1", "fb24eb1a318228b974efbef726190dd90c6106a208814a3ee8f5d69b91ee0ba4", "debian"
)
AMIRI = Package(
    "fonts-hosny-amiri",
    "0.113-1",
    "9960dfd0dd13077d8922e0fb742d735377e8eb62c8b08816a86abbc9cd8b9612",
    "debian",
)
CALAMINE = Package(
    "python-calamine", "0.9.1", "458094c3dd41bd330c0a43d20e23489964ba28b3301687f1c5acc03c81d06a9f"
)
CHARDET = Package("chardet", "5.2.0", "1b3b6ff479a8c414bc3fa2c0852995695c4a026dcd6d0633b2dd092ca39c1cf7")
CSVKIT = Package("csvkit", "2.2.0", "147318a8dbaec07c0bbb9291c14b78de5fa32ed3d4a5c2396e52a83c0a30df6b")
DOCX = Package("python-docx", "1.2.0", "7bc9d7b7d8a69c9c02ca09216118c86552704edc23bac179283f2e38f86220ce")
HACHOIR = Package("hachoir", "3.4.0", "7f88018d58ef42b5dcd8ff51f2a6191abf3ade38eee8da11acd93f5a7d9cf8f8")
HEIF = Package("pillow-heif", "1.8.1", "521ebffb8a181d56c3904e5a61f20903edee0d9d3275967b8fb345f866215c06")
HTML2TEXT = Package(
    "html2text", "2025.4.15", "948a645f8f0bc3abe7fd587019a2197a12436cd73d0d4908af95bfc8da337588"
)
INSCRIPTIS = Package(
    "inscriptis", "2.7.6", "b8fe23c5ae4db33c9d1c5e1b7d000dbfa1decbea7b605ac87e0f5d8f8abc3ce6"
)
LIBARCHIVE = Package(
    "libarchive-c", "5.3", "5ddb42f1a245c927e7686545da77159859d5d4c6d00163c59daff4df314dae82"
)
MEDIAINFO = Package(
    "pymediainfo", "7.0.1", "0d5df59ecc615e24c56f303b8f651579c6accab7265715e5d429186d7ba21514"
)
MUTAGEN = Package("mutagen", "1.48.1", "8f95637ab9f6f305cec6bd1294e197debe207998e3e068596563c74f86b0a173")
NEWSPAPER = Package(
    "newspaper4k", "0.9.6", "a3f2f0e017dddb6f1019ee77aaa8980e13e6ecea0b949abc7167aae4770d2d0e"
)
OCRMYPDF = Package("ocrmypdf", "17.13.0", "151c35d810eb628fbc5cb9bbe80b834ecf094737efa0e7a2e9e1fac3c730ed49")
ODFPY = Package("odfpy", "1.4.1", "db766a6e59c5103212f3cc92ec8dd50a0f3a02790233ed0b52148b70d3c438ec")
OLETOOLS = Package("oletools", "0.60.2", "ad452099f4695ffd8855113f453348200d195ee9fa341a09e197d66ee7e0b2c3")
PIKEPDF = Package("pikepdf", "10.17.0", "de4ccaae83628e86c1fd473b384c09c6ff1dd35a583a8dacbf61d2aa4bea843b")
POLICY = Package(
    "debian-policy", "4.6.2.0", "ef9d01b625c3b87c3a845c2cd1b66f1a16e9240b2b9e5bee53472a00e8457a39", "debian"
)
PPTX = Package("python-pptx", "1.0.2", "479a8af0eaf0f0d76b6f00b0887732874ad2e3188230315290cd1f9dd9cc7095")
PY7ZR = Package("py7zr", "0.22.0", "c6c7aea5913535184003b73938490f9a4d8418598e533f9ca991d3b8e45a139e")
PYEXCEL = Package("pyexcel-ods", "0.6.0", "f61b56515fd4ccd4687f0a112422f74ce8535247ad2da49db90038d7e3ed397c")
RARFILE = Package("rarfile", "4.5", "7425d0afa180f0092db903abb1526a130b36858980aad90b3694f48e41420155")
REFCARD = Package(
    "debian-refcard", "12.0", "9cb06051459a8fbefd0a1d0013a6e8b14931ae544402aa9f56f1e77f555cfd1f", "debian"
)
SCHEHERAZADE = Package(
    "fonts-sil-scheherazade",
    "2.100-2.1",
    "81b583ef38fc0e977031ad8efe310459c10552dfa0acebfb09440f9b6836870d",
    "debian",
)
SVGLIB = Package("svglib", "2.3.2", "625b62cf440ab57f5def42d5be47a0d6b73c02711ef86ab1545650a98ac1ad5f")
TABULA = Package("tabula-py", "2.10.0", "75968a83fe978e5d56ccf23f0f0255a459c256b7b52db7cabe5ac795bb3b12df")
XLRD = Package("xlrd", "1.2.0", "546eb36cee8db40c3eaa46c351e67ffee6eeb5fa2650b71bc4c758a29a1b29b2")


def _twin(package: Package, member: str) -> Path:
    """Another file of a package, beside which a file is laid."""
    folder = package.archive().parent / "twins"
    folder.mkdir(exist_ok=True)
    return package.copy(member, folder)


def _of(package: Package, member: str, read: Any, *more: Any) -> Any:
    """A reading of another file than the one that the tool has: of the same text or table in another format."""
    return lambda path: read(_twin(package, member), *more)


def _plain(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _sheet(package: Package, member: str, check: Check, **arguments: Any) -> Stranger:
    return Stranger(package, member, "extract_csv_content", check, arguments)


def _text(member: str, encoding: str) -> Stranger:
    return Stranger(
        CHARDET,
        f"tests/{member}",
        "extract_text_content",
        same_text(encoding, "chardet's name of its folder"),
    )


def _listed(package: Package, member: str, check: Check) -> Stranger:
    return Stranger(package, member, "list_archive", check)


def _archive_json(path: Path) -> dict[str, int]:
    beside = _twin(LIBARCHIVE, f"tests/data/{path.name}.json")
    return {one["path"]: one["size"] for one in json.loads(beside.read_bytes()) if one["isreg"]}


def _spoken(name: str, path: Path) -> str:
    return name.replace("_", " ")


_SCANNED = ("linn.pdf", "skew.pdf")
_CSV = "examples"
_XLS = "tests"
_WORD = "features/steps/test_files"
_SLIDES = "features/steps/test_files"
_OLE = "tests/test-data"
_PDF = "tests/resources"
_DOCS = "usr/share/doc"
_EMBEDDED = f"{_OLE}/oleobj/embedded-simple-2007"
_STATED = "its package's tests"
_HOLDS = "its package's own text of it"
_pandas = partial(same_rows, "pandas", by.pandas_rows)
_xlrd = partial(same_rows, "xlrd")
_openpyxl = partial(same_rows, "openpyxl")
_odfpy = partial(same_rows, "odfpy")


def _pdf(package: Package, member: str, check: Check, **arguments: Any) -> Stranger:
    programs = ("tesseract",) if PurePath(member).name in _SCANNED else ()
    return Stranger(
        package, member, "convert_document_to_markdown", check, arguments, "pages" not in arguments, programs
    )


def _html(package: Package, member: str, check: Check) -> Stranger:
    return Stranger(package, member, "extract_html_content", check, {"include_links": False})


def _sound(member: str, check: Check | None = None, package: Package = MUTAGEN) -> Stranger:
    folder = "tests/data" if package is MUTAGEN else "tests/files"
    return Stranger(
        package,
        f"{folder}/{member}",
        "extract_audio_metadata",
        check or facts_by("mutagen", by.mutagen_facts),
    )


def _picture(package: Package, member: str, **expected: Any) -> Stranger:
    return Stranger(package, member, "get_image_metadata", facts(_STATED, **expected))


PART = 3
TRY_ALL = "GAIA_TOOLS_TESTS_TRY_ALL"
"""Every third file is read; all of them where this environment variable is set."""
FILES = (
    # Tables as text
    _sheet(CSVKIT, f"{_CSV}/iris.csv", same_rows("pandas", by.pandas_rows)),
    _sheet(CSVKIT, f"{_CSV}/realdata/FY09_EDU_Recipients_by_State.csv", same_rows("pandas", by.pandas_rows)),
    _sheet(CSVKIT, f"{_CSV}/realdata/ks_1033_data.csv", same_rows("pandas", by.pandas_rows)),
    _sheet(
        CSVKIT, f"{_CSV}/test_latin1.csv", same_rows("pandas", partial(by.pandas_rows, encoding="latin-1"))
    ),
    _sheet(
        CSVKIT, f"{_CSV}/test_utf16_big.csv", same_rows("pandas", partial(by.pandas_rows, encoding="utf-16"))
    ),
    _sheet(
        CSVKIT,
        f"{_CSV}/test_utf16_little.csv",
        same_rows("pandas", partial(by.pandas_rows, encoding="utf-16")),
    ),
    _sheet(
        CSVKIT,
        f"{_CSV}/test_utf8_bom.csv",
        same_rows("pandas", partial(by.pandas_rows, encoding="utf-8-sig")),
    ),
    _sheet(CSVKIT, f"{_CSV}/test_header_newline.csv", same_rows("pandas", by.pandas_rows)),
    _sheet(CSVKIT, f"{_CSV}/mac_newlines.csv", same_rows("pandas", by.pandas_rows)),
    _sheet(CSVKIT, f"{_CSV}/test_geo.csv", same_rows("pandas", by.pandas_rows)),
    _sheet(CSVKIT, f"{_CSV}/dummy.tsv", same_rows("pandas", partial(by.pandas_rows, separator="\t"))),
    _sheet(
        TABULA,
        "examples/test.tsv",
        same_rows("pandas, of the same table as .csv", _of(TABULA, "examples/test.csv", by.pandas_rows)),
    ),
    # Spreadsheets
    _sheet(XLRD, f"{_XLS}/profiles.xls", _xlrd(by.xlrd_rows)),
    _sheet(XLRD, f"{_XLS}/Formate.xls", _xlrd(by.xlrd_rows)),
    _sheet(XLRD, f"{_XLS}/formula_test_sjmachin.xls", _xlrd(by.xlrd_rows)),
    _sheet(XLRD, f"{_XLS}/ragged.xls", _xlrd(by.xlrd_rows)),
    _sheet(AGATE, "examples/test.xls", _xlrd(by.xlrd_rows)),
    _sheet(
        AGATE,
        "examples/test_sheets.xls",
        _xlrd(partial(by.xlrd_rows, sheet="data")),
        sheet_name="data",
    ),
    _sheet(
        CALAMINE,
        f"{_XLS}/data/base.xls",
        same_rows(
            "openpyxl, of the same table as .xlsx", _of(CALAMINE, f"{_XLS}/data/base.xlsx", by.openpyxl_rows)
        ),
    ),
    _sheet(AGATE, "examples/ne_1033_data.xlsx", _openpyxl(by.openpyxl_rows)),
    _sheet(XLRD, f"{_XLS}/merged_cells.xlsx", _openpyxl(by.openpyxl_rows)),
    _sheet(XLRD, f"{_XLS}/text_bar.xlsx", _openpyxl(by.openpyxl_rows)),
    _sheet(CALAMINE, f"{_XLS}/data/base.xlsx", _openpyxl(by.openpyxl_rows)),
    _sheet(
        XLRD,
        f"{_XLS}/test_comments_excel.xlsx",
        states(_STATED, "B1: hello"),
        include_formatting=True,
    ),
    _sheet(
        OLETOOLS,
        f"{_OLE}/encrypted/dde-test-encrypt-standardpassword.xlsx",
        _openpyxl(partial(by.openpyxl_rows, password="VelvetSweatshop")),
        password="VelvetSweatshop",
    ),
    _sheet(CALAMINE, f"{_XLS}/data/password.xlsx", refuses(_STATED, "password")),
    _sheet(
        CALAMINE,
        f"{_XLS}/data/base.xlsb",
        same_rows(
            "openpyxl, of the same table as .xlsx", _of(CALAMINE, f"{_XLS}/data/base.xlsx", by.openpyxl_rows)
        ),
    ),
    _sheet(ODFPY, "tests/examples/pythagoras.ods", _odfpy(by.odf_rows)),
    _sheet(ODFPY, "tests/examples/chinese_spreadsheet.ods", _odfpy(by.odf_rows)),
    _sheet(PYEXCEL, "tests/fixtures/multilineods.ods", _odfpy(by.odf_rows)),
    _sheet(PYEXCEL, "tests/fixtures/repeated.ods", _odfpy(by.odf_rows)),
    # Word
    *(
        Stranger(
            DOCX,
            f"{_WORD}/{name}.docx",
            "extract_docx_content",
            same_words("python-docx", by.python_docx_text),
        )
        for name in (
            "par-known-paragraphs",
            "blk-paras-and-tables",
            "tbl-cell-access",
            "par-hyperlinks",
            "txt-font-props",
            "sct-inner-content",
        )
    ),
    Stranger(
        DOCX,
        f"{_WORD}/comments-rich-para.docx",
        "extract_docx_content",
        same_words("python-docx, its comments", by.docx_comments),
    ),
    Stranger(
        DOCX,
        f"{_WORD}/hdr-header-footer.docx",
        "extract_docx_content",
        states("its own text", "Header for section 1", "Footer for section 1"),
    ),
    Stranger(
        OLETOOLS,
        "cheatsheet/oletools_cheatsheet.docx",
        "extract_docx_content",
        same_words("python-docx", by.python_docx_text),
    ),
    Stranger(
        OLETOOLS,
        f"{_OLE}/msodde/harmless-clean.doc",
        "extract_docx_content",
        same_words(
            "python-docx, of the same text as .docx",
            _of(OLETOOLS, f"{_OLE}/msodde/harmless-clean.docx", by.python_docx_text),
        ),
    ),
    Stranger(
        OLETOOLS,
        f"{_EMBEDDED}.doc",
        "extract_docx_content",
        same_words(
            "python-docx, of the same text as .docx", _of(OLETOOLS, f"{_EMBEDDED}.docx", by.python_docx_text)
        ),
    ),
    Stranger(
        OLETOOLS,
        f"{_EMBEDDED}.dot",
        "extract_docx_content",
        same_words(
            "python-docx, of the same text as .docx",
            _of(OLETOOLS, f"{_EMBEDDED}.docx", by.python_docx_text),
        ),
    ),
    Stranger(OLETOOLS, f"{_OLE}/basic/encrypted.docx", "extract_docx_content", refuses(_STATED, "password")),
    *(
        Stranger(
            ODFPY,
            f"tests/examples/{name}.odt",
            "extract_docx_content",
            same_words("odfpy", by.odf_text),
        )
        for name in ("simpletable", "twolevellist", "serious_poem", "definitionlists", "parastyles")
    ),
    Stranger(
        SCHEHERAZADE,
        f"{_DOCS}/fonts-sil-scheherazade/documentation/Scheherazade-features.odt",
        "extract_docx_content",
        same_words("odfpy, which joins notes to words", by.odf_text, 0.99),
    ),
    Stranger(
        OLETOOLS,
        f"{_OLE}/msodde/RTF-Spec-1.7.rtf",
        "extract_docx_content",
        states(
            "the specification as it was printed",
            "Rich Text Format (RTF) Specification",
            "Conventions of an RTF Reader",
            "The RTF Specification provides a format for text and graphics interchange",
        ),
        whole=False,
    ),
    # Slides
    *(
        Stranger(
            PPTX, f"{_SLIDES}/{name}.pptx", "extract_pptx_content", same_words("its XML", by.slides_text)
        )
        for name in (
            "tbl-cell",
            "txt-text",
            "ph-populated-placeholders",
            "shp-autoshape-props",
            "shp-shapes",
            "txt-paragraph-spacing",
        )
    ),
    Stranger(
        PPTX,
        f"{_SLIDES}/sld-notes.pptx",
        "extract_pptx_content",
        same_words("its XML, of the notes", partial(by.slides_text, parts="notesSlides/notesSlide")),
    ),
    *(
        Stranger(
            OLETOOLS, f"{_EMBEDDED}.{ending}", "extract_pptx_content", same_words("its XML", by.slides_text)
        )
        for ending in ("ppsx", "potx", "pptm")
    ),
    # PDF
    _pdf(
        TABULA,
        f"{_PDF}/data.pdf",
        same_words(
            "tabula-java, as the package's tests have it", _of(TABULA, f"{_PDF}/data_1.csv", by.csv_words)
        ),
    ),
    _pdf(
        TABULA,
        f"{_PDF}/campaign_donors.pdf",
        same_words(
            "tabula-java, as the package's tests have it",
            _of(TABULA, f"{_PDF}/campaign_donors.csv", by.csv_words),
            0.98,
        ),
    ),
    _pdf(
        TABULA,
        f"{_PDF}/MultiColumn.pdf",
        same_words(
            "tabula-java, as the package's tests have it",
            _of(TABULA, f"{_PDF}/MultiColumn.csv", by.csv_words),
        ),
    ),
    _pdf(TABULA, f"{_PDF}/12s0324.pdf", same_words("pdftotext", by.poppler_text, program="pdftotext")),
    _pdf(PIKEPDF, f"{_PDF}/fourpages.pdf", same_words("pdftotext", by.poppler_text, program="pdftotext")),
    _pdf(PIKEPDF, f"{_PDF}/pdfa/fpdf2_cjk.pdf", same_words("pypdf", by.pypdf_text)),
    _pdf(PIKEPDF, f"{_PDF}/graph-encrypted.pdf", refuses(_STATED, "password=")),
    _pdf(
        PIKEPDF,
        f"{_PDF}/form_dd0293.pdf",
        same_words("pdftotext", partial(by.poppler_text, last=1), 0.98, program="pdftotext"),
        pages="1",
    ),
    _pdf(
        PIKEPDF,
        f"{_PDF}/form_dd0293.pdf",
        same_words("pypdf, what its fields hold", by.pypdf_fields),
        pages="1",
        paginate=True,
    ),
    _pdf(
        OCRMYPDF,
        f"{_PDF}/linn.pdf",
        same_words(_HOLDS, _of(OCRMYPDF, f"{_PDF}/linn.txt", _plain), 0.9),
    ),
    _pdf(
        OCRMYPDF,
        f"{_PDF}/skew.pdf",
        same_words(f"{_HOLDS}, which is a little turned", _of(OCRMYPDF, f"{_PDF}/linn.txt", _plain), 0.8),
    ),
    _pdf(OCRMYPDF, f"{_PDF}/tagged.pdf", same_words("pdftotext", by.poppler_text, program="pdftotext")),
    _pdf(
        POLICY,
        f"{_DOCS}/debian-policy/fhs/fhs-3.0.pdf.gz",
        same_words("pdftotext", partial(by.poppler_text, first=5, last=8), 0.98, program="pdftotext"),
        pages="5-8",
    ),
    _pdf(
        SCHEHERAZADE,
        f"{_DOCS}/fonts-sil-scheherazade/documentation/Scheherazade-features.pdf.gz",
        same_words(
            "odfpy, of the .odt it is from, with Arabic",
            _of(
                SCHEHERAZADE,
                f"{_DOCS}/fonts-sil-scheherazade/documentation/Scheherazade-features.odt",
                by.odf_text,
            ),
            0.96,
        ),
    ),
    _pdf(
        AMIRI,
        f"{_DOCS}/fonts-hosny-amiri/Documentation-Arabic.pdf.gz",
        same_words("pdftotext", by.poppler_text, 0.9, program="pdftotext"),
    ),
    _pdf(
        REFCARD,
        f"{_DOCS}/debian-refcard/refcard-ru-a4.pdf.gz",
        same_words("pdftotext", by.poppler_text, 0.98, program="pdftotext"),
    ),
    _pdf(
        REFCARD,
        f"{_DOCS}/debian-refcard/refcard-ja-a4.pdf.gz",
        same_words("pdftotext", by.poppler_text, 0.98, program="pdftotext"),
    ),
    # Text of many encodings
    _text("Big5/_ude_1.txt", "big5"),
    _text("SHIFT_JIS/_ude_1.txt", "cp932"),
    _text("CP932/hardsoft.at.webry.info.xml", "cp932"),
    _text("EUC-JP/_ude_1.txt", "euc_jp"),
    _text("EUC-KR/_ude_euc1.txt", "euc_kr"),
    _text("GB2312/_mozilla_bug171813_text.html", "gb18030"),
    _text("KOI8-R/_ude_1.txt", "koi8_r"),
    _text("windows-1251-russian/_ude_1.txt", "cp1251"),
    _text("windows-1251-bulgarian/bpm.cult.bg.2.xml", "cp1251"),
    _text("windows-1252/_ude_1.txt", "cp1252"),
    _text("iso-8859-1/_ude_1.txt", "latin-1"),
    _text("windows-1250-czech/_ude_1.txt", "cp1250"),
    _text("iso-8859-2-hungarian/_ude_1.txt", "iso8859_2"),
    _text("windows-1255-hebrew/_ude_he1.txt", "cp1255"),
    _text("windows-1256-arabic/_chromium_windows-1256_with_no_encoding_specified.html", "cp1256"),
    _text("windows-1254-turkish/_ude_1.txt", "cp1254"),
    _text("iso-8859-9-turkish/subtitle.srt", "iso8859_9"),
    _text("iso-8859-7-greek/_ude_1.txt", "iso8859_7"),
    _text("iso-8859-5-russian/aif.ru.health.xml", "iso8859_5"),
    _text("TIS-620/opentle.org.xml", "tis_620"),
    _text("iso-2022-jp/_ude_1.txt", "iso2022_jp"),
    _text("IBM866/_ude_1.txt", "cp866"),
    _text("MacCyrillic/_ude_1.txt", "mac_cyrillic"),
    _text("utf-8/_ude_1.txt", "utf-8"),
    _text("utf-8-sig/bom-utf-8.srt", "utf-8-sig"),
    _text("UTF-16/bom-utf-16-le.srt", "utf-16"),
    _text("UTF-16/bom-utf-16-be.srt", "utf-16"),
    _text("UTF-16BE/nobom-utf16be.txt", "utf-16-be"),
    _text("UTF-16LE/nobom-utf16le.txt", "utf-16-le"),
    _text("UTF-32/bom-utf-32-le.srt", "utf-32"),
    _text("UTF-32BE/nobom-utf32be.txt", "utf-32-be"),
    # Pages and books
    _html(INSCRIPTIS, "tests/html/wikipedia-table.html", same_words("html5lib", by.html_text)),
    _html(
        INSCRIPTIS,
        "tests/html/wikipedia-enumeration.html",
        same_words(_HOLDS, _of(INSCRIPTIS, "tests/html/wikipedia-enumeration.txt", _plain)),
    ),
    _html(
        INSCRIPTIS,
        "tests/html/table-in-table.html",
        same_words(_HOLDS, _of(INSCRIPTIS, "tests/html/table-in-table.txt", _plain)),
    ),
    _html(INSCRIPTIS, "tests/html/real-world/rswag-mitarbeiter.html", same_words("html5lib", by.html_text)),
    _html(HTML2TEXT, "test/normal.html", same_words("html5lib", by.html_text)),
    _html(HTML2TEXT, "test/GoogleDocSaved.html", same_words("html5lib", by.html_text)),
    *(
        _html(
            NEWSPAPER,
            f"tests/data/html/{name}.html",
            same_words(_HOLDS, _of(NEWSPAPER, f"tests/data/txt/{name}.txt", _plain), 0.99),
        )
        for name in (
            "arabic_article",
            "chinese_article_001",
            "japanese_article",
            "thai_article",
            "spanish_article",
        )
    ),
    _html(
        POLICY,
        f"{_DOCS}/debian-policy/autopkgtest.html",
        same_words(
            "the same as .txt", _of(POLICY, f"{_DOCS}/debian-policy/autopkgtest.txt.gz", _plain), 0.98
        ),
    ),
    Stranger(
        POLICY,
        f"{_DOCS}/debian-policy/policy.epub",
        "extract_epub_content",
        same_words("html5lib, of one chapter", partial(by.epub_text, chapter=8)),
        {"chapter": 8},
    ),
    # Data
    *(
        Stranger(package, member, "extract_text_content", same_value("json", json.loads, by.json_value))
        for package, member in (
            (CSVKIT, f"{_CSV}/testjson_nested.json"),
            (CSVKIT, f"{_CSV}/test_geojson.json"),
            (TABULA, f"{_PDF}/data_1.json"),
            (NEWSPAPER, "tests/data/metadata/thai_article.json"),
        )
    ),
    *(
        Stranger(package, member, "extract_text_content", same_text("utf-8"))
        for package, member in (
            (OLETOOLS, f"{_OLE}/ooxml/harmless-clean-2003.xml"),
            (MEDIAINFO, "tests/data/sample.xml"),
            (SVGLIB, "tests/samples/misc/tiger.svg"),
        )
    ),
    # Archives
    _listed(LIBARCHIVE, "tests/data/testtar.tar", same_tree(_STATED, _archive_json)),
    _listed(LIBARCHIVE, "tests/data/unicode.zip", same_tree(_STATED, _archive_json)),
    _listed(LIBARCHIVE, "tests/data/unicode2.zip", same_tree(_STATED, _archive_json)),
    _listed(LIBARCHIVE, "tests/data/프로그램.zip", same_tree(_STATED, _archive_json)),
    _listed(LIBARCHIVE, "", same_tree("tar", by.tree_of_tar)),
    _listed(HACHOIR, "tests/files/small_text.tar", same_tree("tar", by.tree_of_tar)),
    _listed(PY7ZR, "tests/data/test_1.7z", refuses("the message names the program", "bsdtar -xf")),
    Stranger(
        PY7ZR,
        "tests/data/test_1.7z",
        "execute_command",
        states(
            "digests in its package's tests",
            "ff77878e070c4ba52732b0c847b5a055a7c454731939c3217db4a7fb4a1e7240",
        ),
        {"command": "bsdtar -xf {name} && sha256sum setup.cfg"},
        programs=("bsdtar",),
    ),
    _listed(PY7ZR, "tests/data/src.zip", same_tree("bsdtar", by.tree_by_bsdtar, program="bsdtar")),
    Stranger(
        CSVKIT,
        f"{_CSV}/dummy.csv.bz2",
        "extract_archive",
        extracts("the file beside it", _of(CSVKIT, f"{_CSV}/dummy.csv", Path.read_bytes)),
    ),
    Stranger(
        CSVKIT,
        f"{_CSV}/dummy.csv.gz",
        "extract_archive",
        extracts("the file beside it", _of(CSVKIT, f"{_CSV}/dummy.csv", Path.read_bytes)),
    ),
    # Pictures
    _picture(DOCX, f"{_WORD}/lena_std.jpg", width=512, height=512, format="JPEG"),
    _picture(DOCX, f"{_WORD}/sample.tif", width=1600, height=2100, dpi=[200.0, 200.0], format="TIFF"),
    _picture(DOCX, f"{_WORD}/court-exif.jpg", width=500, height=375),
    _picture(DOCX, f"{_WORD}/mountain.bmp", width=640, height=480),
    _picture(HACHOIR, "tests/files/jpeg.exif.photoshop.jpg", width=124),
    _picture(HACHOIR, "tests/files/kde_haypo_corner.bmp", width=189),
    _picture(HEIF, "tests/images/heif/RGB_8__29x100.heif", width=29, height=100),
    _picture(HEIF, "tests/images/heif/RGBA_10__128x128.heif", width=128, height=128),
    _picture(HEIF, "tests/images/heif_other/nokia/stereo_1200x800.heic", width=1200, height=800),
    _picture(HEIF, "tests/images/non_heif/RGB_16__29x100.png", width=29, height=100, format="PNG"),
    Stranger(
        OCRMYPDF,
        f"{_PDF}/linn.png",
        "extract_text_ocr",
        same_words(_HOLDS, _of(OCRMYPDF, f"{_PDF}/linn.txt", _plain), 0.9),
    ),
    *(
        Stranger(
            SVGLIB,
            f"tests/samples/{name}.svg",
            "get_image_metadata",
            facts_by("its XML", by.svg_size),
        )
        for name in ("misc/gradient_showcase", "clipping/circle")
    ),
    Stranger(
        SVGLIB,
        "tests/samples/misc/gradient_showcase.svg",
        "extract_text_ocr",
        same_words("its XML", by.svg_text, 0.8),
    ),
    Stranger(OCRMYPDF, f"{_PDF}/crom.png", "extract_text_ocr", states(_STATED, "crom")),
    # Sound and films
    _sound("silence-44-s.mp3"),
    _sound("silence-44-s.flac"),
    _sound("has-tags.m4a"),
    _sound("multipagecomment.ogg"),
    _sound("11k-1ch-2s-silence.aif"),
    _sound("silence-2s-PCM-44100-16-ID3v23.wav"),
    _sound("kde_click.wav", facts(_STATED, sample_rate=22050, seconds=0.019546), HACHOIR),
    _sound("sheep_on_drugs.mp3", facts(_STATED, tags={"artist": "Sheep On Drugs"}), HACHOIR),
    _sound(
        "interlude_david_aubrun.ogg",
        facts(_STATED, seconds=72.019, channels=2, sample_rate=44100, tags={"title": "interlude symbiosys1"}),
        HACHOIR,
    ),
    _sound(
        "flashmob.mkv",
        facts(_STATED, seconds=17.844, channels=1, sample_rate=44100, video_streams=1),
        HACHOIR,
    ),
    *(
        Stranger(
            ALSA,
            f"usr/share/sounds/alsa/{name}.wav",
            "transcribe_audio",
            # The small model that needs no download knows one word of two.
            same_words("what its name says, a word of two", partial(_spoken, name), 0.5),
        )
        for name in ("Front_Center", "Front_Right", "Rear_Left", "Side_Right")
    ),
    Stranger(
        HACHOIR,
        "tests/files/flashmob.mkv",
        "extract_keyframes",
        facts(_STATED, seconds=17.8),
        {"target_time": 5},
    ),
    Stranger(
        MEDIAINFO,
        "tests/data/sample.mp4",
        "extract_audio_metadata",
        facts_by("mutagen", by.mutagen_facts),
    ),
)
