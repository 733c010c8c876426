"""What others read in a file: libraries and programs that the tools do not use for it."""

import csv
import datetime
import io
import json
import re
import subprocess
import zipfile
from pathlib import Path
from typing import Any

Rows = list[list[Any]]
_WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_DRAWING = "{http://schemas.openxmlformats.org/drawingml/2006/main}"


def openpyxl_rows(path: Path, sheet: str = "", password: str = "") -> Rows:
    import openpyxl

    source: Any = path
    if password:
        import msoffcrypto

        source = io.BytesIO()
        with path.open("rb") as file:
            book = msoffcrypto.OfficeFile(file)
            book.load_key(password=password)
            book.decrypt(source)
    workbook = openpyxl.load_workbook(source, data_only=True, keep_links=False)
    return [list(row) for row in workbook[sheet or workbook.sheetnames[0]].iter_rows(values_only=True)]


def xlrd_rows(path: Path, sheet: str = "") -> Rows:
    import xlrd

    book = xlrd.open_workbook(path, logfile=io.StringIO())
    found = book.sheet_by_name(sheet) if sheet else book.sheet_by_index(0)

    def value(cell: Any) -> Any:
        if cell.ctype == xlrd.XL_CELL_DATE:
            moment = xlrd.xldate.xldate_as_datetime(cell.value, book.datemode)
            return moment.time() if cell.value < 1 else moment
        if cell.ctype == xlrd.XL_CELL_BOOLEAN:
            return bool(cell.value)
        if cell.ctype == xlrd.XL_CELL_ERROR:
            return xlrd.error_text_from_code[cell.value]
        return cell.value

    return [[value(cell) for cell in found.row(number)] for number in range(found.nrows)]


def odf_rows(path: Path, sheet: str = "") -> Rows:
    from odf.namespaces import OFFICENS, TABLENS
    from odf.opendocument import load
    from odf.table import Table, TableCell, TableRow
    from odf.teletype import extractText
    from odf.text import P

    tables = load(str(path)).spreadsheet.getElementsByType(Table)
    names = [one.getAttrNS(TABLENS, "name") for one in tables]
    rows: Rows = []
    for row in tables[names.index(sheet) if sheet else 0].getElementsByType(TableRow):
        cells: list[Any] = []
        for one in row.getElementsByType(TableCell):
            kind = one.getAttrNS(OFFICENS, "value-type")
            if kind in ("float", "percentage", "currency"):
                value: Any = float(one.getAttrNS(OFFICENS, "value"))
            elif kind == "date":
                value = datetime.datetime.fromisoformat(one.getAttrNS(OFFICENS, "date-value"))
            elif kind == "boolean":
                value = one.getAttrNS(OFFICENS, "boolean-value") == "true"
            else:
                value = "\n".join(extractText(line) for line in one.getElementsByType(P))
            cells += [value] * int(one.getAttrNS(TABLENS, "number-columns-repeated") or 1)
        while cells and cells[-1] in ("", None):
            cells.pop()
        rows += [cells] * (int(row.getAttrNS(TABLENS, "number-rows-repeated") or 1) if cells else 1)
    return rows


def pandas_rows(path: Path, separator: str = ",", encoding: str = "utf-8") -> Rows:
    import pandas

    frame = pandas.read_csv(
        path, sep=separator, encoding=encoding, header=None, dtype=str, keep_default_na=False, engine="c"
    )
    return [list(row) for row in frame.itertuples(index=False)]


def python_docx_text(path: Path) -> str:
    """Paragraphs and tables of the body, in their order."""
    import docx

    def lines(blocks: Any) -> list[str]:
        found = []
        for block in blocks.iter_inner_content():
            if hasattr(block, "rows"):
                cells = {cell._tc: cell for row in block.rows for cell in row.cells}
                found += [line for cell in cells.values() for line in lines(cell)]
            else:
                found.append(block.text)
        return found

    return "\n".join(lines(docx.Document(str(path))))


def docx_comments(path: Path) -> str:
    import docx

    return "\n".join(f"{one.author} {one.text}" for one in docx.Document(str(path)).comments)


def slides_text(path: Path, parts: str = "slides/slide") -> str:
    """The text of all slides, or of their notes, by their XML."""
    from lxml import etree

    with zipfile.ZipFile(path) as book:
        names = [name for name in book.namelist() if re.fullmatch(rf"ppt/{parts}\d+\.xml", name)]
        roots = [etree.fromstring(book.read(name)) for name in names]
    lines = []
    for paragraph in (one for root in roots for one in root.iter(f"{_DRAWING}p")):
        # A line break, or a field such as a slide's number, which a reader of the text need not have.
        pieces = [
            one
            for one in paragraph.iter(f"{_DRAWING}t", f"{_DRAWING}br")
            if one.getparent().tag != f"{_DRAWING}fld"
        ]
        lines.append("".join(one.text or "" if one.tag == f"{_DRAWING}t" else "\n" for one in pieces))
    return "\n".join(lines).replace("_x000B_", "\n")


def odf_text(path: Path) -> str:
    from odf import teletype
    from odf.opendocument import load
    from odf.text import H, P

    document = load(str(path))
    body = document.text if hasattr(document, "text") else document.presentation
    paragraphs = [one for kind in (H, P) for one in body.getElementsByType(kind)]
    nodes = set(map(id, paragraphs))

    def is_inner(one: Any) -> bool:
        """Whether it is in a note of another paragraph, whose text has it."""
        while (one := one.parentNode) is not None:
            if id(one) in nodes:
                return True
        return False

    return "\n".join(teletype.extractText(one) for one in paragraphs if not is_inner(one))


def pypdf_text(path: Path, pages: slice = slice(None), password: str = "") -> str:
    import pypdf

    return "\n".join(
        page.extract_text() for page in pypdf.PdfReader(path, password=password or None).pages[pages]
    )


def poppler_text(path: Path, first: int = 1, last: int = 100) -> str:
    return _printed("pdftotext", "-f", str(first), "-l", str(last), str(path), "-")


def pypdf_fields(path: Path) -> str:
    """What a form is filled in with."""
    import pypdf

    fields = pypdf.PdfReader(path).get_fields() or {}
    return "\n".join(str(one["/V"]).lstrip("/") for one in fields.values() if one.get("/V") not in (None, ""))


def html_text(path: Path, encoding: str = "utf-8") -> str:
    """The words of a page as html5lib's parser, that of browsers, makes its tree."""
    import html5lib

    root = html5lib.parse(path.read_text(encoding=encoding), namespaceHTMLElements=False)
    for parent in list(root.iter()):
        for one in list(parent):
            if not isinstance(one.tag, str) or one.tag in ("script", "style", "head", "noscript", "template"):
                one.text = ""
                del one[:]
    return "\n".join(root.itertext())


def epub_text(path: Path, chapter: int) -> str:
    """A chapter of a book, by its order in the spine."""
    import html5lib
    from lxml import etree

    with zipfile.ZipFile(path) as book:
        (name,) = [one for one in book.namelist() if one.endswith(".opf")]
        package = etree.fromstring(book.read(name))
        items = {one.get("id"): one.get("href") for one in package.iter("{*}item")}
        order = [items[one.get("idref")] for one in package.iter("{*}itemref")]
        page = book.read(str(Path(name).parent / order[chapter - 1]))
    body = html5lib.parse(page, namespaceHTMLElements=False).find("body")
    return "\n".join(body.itertext())


def svg_text(path: Path) -> str:
    from lxml import etree

    texts = etree.parse(path).iter("{*}text", "text")
    return "\n".join(" ".join("".join(one.itertext()).split()) for one in texts)


def svg_size(path: Path) -> dict[str, int]:
    from lxml import etree

    root = etree.parse(path).getroot()
    return {name: round(float(root.get(name).removesuffix("px"))) for name in ("width", "height")}


def tree_of_tar(path: Path) -> dict[str, int]:
    """Names of files and their bytes, by the program tar."""
    found = {}
    for line in _printed("tar", "--numeric-owner", "-tvf", str(path)).splitlines():
        fields = line.split(None, 5)
        if line.startswith("-"):
            found[fields[5]] = int(fields[2])
    return found


def tree_by_bsdtar(path: Path) -> dict[str, int]:
    """Names of files and their bytes, by libarchive."""
    found = {}
    for line in _printed("bsdtar", "-tvf", str(path)).splitlines():
        fields = line.split(None, 8)
        if line.startswith("-"):
            found[fields[8]] = int(fields[4])
    return found


def mutagen_facts(path: Path) -> dict[str, Any]:
    import mutagen

    file = mutagen.File(path)
    facts = {"seconds": file.info.length}
    for name in ("sample_rate", "channels"):
        if hasattr(file.info, name):
            facts[name] = getattr(file.info, name)
    return facts


def csv_words(path: Path) -> str:
    return "\n".join(" ".join(row) for row in csv.reader(path.read_text(encoding="utf-8-sig").splitlines()))


def json_value(path: Path) -> Any:
    return json.loads(path.read_bytes())


def _printed(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, timeout=60, check=True)
    return done.stdout.decode("utf-8")
