"""documents-docx-server: Word files, old and new, OpenDocument texts and rich text.

mammoth reads .docx, apart from headers, footers and charts. anydoc reads the others, without comments, headers, footers
and superscripts: those of .odt and .rtf are read here, and of .doc the result says so.
"""

import contextlib
import io
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import olefile
from mcp.server.fastmcp import FastMCP
from mcp.server.fastmcp.exceptions import ToolError
from mcp.types import CallToolResult
from pydantic import Field

from gaia_tools import charts, office_model, office_xml, open_document, rich_text, word_numbers
from gaia_tools.document_pictures import Pictures
from gaia_tools.documents import FOR_HTML, FilePath, Format, Password, Start, document, formats, ready, some
from gaia_tools.files import readable
from gaia_tools.isolated import isolated
from gaia_tools.kinds import expect
from gaia_tools.page_markdown import markdown, tree
from gaia_tools.zips import decrypted, office

server = FastMCP("documents-docx-server", log_level="WARNING")
_FORMATS = {
    ".docx .docm .dotx": "Word",
    ".doc .dot": "Word of before 2007; headers, footers and comments are not shown",
    ".odt .ott": "OpenDocument text, as of LibreOffice",
    ".rtf": "rich text",
}
_MAX_BYTES = 100 << 20
_STYLES = """
p[style-name='Title'] => h1:fresh
p[style-name='Subtitle'] => h2:fresh
comment-reference => sup
"""
_WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_DUBLIN_CORE = "http://purl.org/dc/elements/1.1/"
_OLD_EQUATION = b'ProgID="Equation.'
# Where a Word file says how many characters of each it has: ccpHdd and ccpAtn of FibRgLw97 in [MS-DOC].
_DOC_PARTS = {"headers and footers": 0x54, "comments": 0x5C}
_DOC_HEAD_BYTES = 0x60
_DOC_STREAMS = ("WordDocument", "0Table", "1Table")
_DOC_RAISED = (b"\x48\x2a\x01", b"\x48\x2a\x02")  # sprmCIss of [MS-DOC], superscript or subscript


@server.tool()
async def extract_docx_content(
    file_path: FilePath,
    output_format: Format = "markdown",
    extract_images: Annotated[
        bool, Field(description="Write its pictures into the workspace and name them where they stand.")
    ] = False,
    extract_tables: Annotated[bool, Field(description="Show its tables.")] = True,
    extract_headers_footers: Annotated[
        bool, Field(description="Show what stands above and below its pages.")
    ] = True,
    include_structure: Annotated[
        bool, Field(description="Also list its headings, and count what it has.")
    ] = False,
    start: Start = 0,
    password: Password = "",
) -> CallToolResult:
    """Read a .docx, .doc, .odt or .rtf file as Markdown: headings, lists, tables, notes, comments, headers, footers.

    Merged cells of tables repeat their text.
    """
    path = readable(file_path, _MAX_BYTES)
    ready("mammoth", *FOR_HTML)
    content, facts = await isolated(
        _read, path, password, extract_images, extract_tables, extract_headers_footers, include_structure
    )
    return document(path, content, facts, output_format, start)


@server.tool()
async def list_supported_formats() -> CallToolResult:
    """The kinds of files that are read as Word files."""
    return formats(_FORMATS)


@dataclass(frozen=True)
class _Word:
    html: str
    images: list[str]
    facts: dict[str, Any]
    headers: list[str] = field(default_factory=list)
    footers: list[str] = field(default_factory=list)
    beyond: str = ""


def _read(
    path: Path, password: str, images: bool, tables: bool, headers_footers: bool, structure: bool
) -> tuple[str, dict[str, Any]]:
    from bs4 import BeautifulSoup

    pictures = Pictures(path) if images else None
    kind = expect(path, "docx", "doc", "odt", "rtf", "encrypted")
    word = (
        _docx(path, password, pictures)
        if kind in ("docx", "encrypted")
        else _other(path, kind, password, pictures)
    )
    facts = {"format": "docx" if kind == "encrypted" else kind} | word.facts
    html = BeautifulSoup(word.html, "lxml")
    headings = html.find_all(["h1", "h2", "h3", "h4", "h5", "h6"])
    counts = {"headings": len(headings), "tables": len(html.find_all("table")), "images": len(word.images)}
    outline = [f"{'  ' * (int(one.name[1]) - 1)}- {one.get_text().strip()}" for one in headings]
    for table in html.find_all("table"):
        if not tables:
            table.decompose()
        elif row := table.find("tr"):
            for cell in row.find_all("td", recursive=False):
                cell.name = "th"
    parts = [markdown(tree(str(html)))]
    facts |= counts
    if headers_footers:
        facts |= {"headers": word.headers, "footers": word.footers}
        parts = [
            *(f"[Header: {line}]" for line in word.headers),
            *parts,
            *(f"[Footer: {line}]" for line in word.footers),
        ]
    if structure:
        facts["structure"] = outline
        about = ", ".join(some(number, what.removesuffix("s")) for what, number in counts.items())
        parts.insert(0, "\n".join([f"Structure: {about}", *outline]))
    if pictures:
        facts["image_files"] = pictures.paths
    parts.append(word.beyond)
    return "\n\n".join(part for part in parts if part), facts


def _docx(path: Path, password: str, pictures: Pictures | None) -> _Word:
    import mammoth

    content = office(path, "docx", password)
    shown = _Shown(pictures)
    try:
        content = word_numbers.with_numbers(office_xml.readable_word(content))
        written = mammoth.convert_to_html(
            content, style_map=_STYLES, convert_image=shown, transform_document=_with_authors
        ).value
        with zipfile.ZipFile(content) as word:
            facts = {"title": _metadata(word, "title"), "author": _metadata(word, "creator")}
            headers, footers = _around(word, "header"), _around(word, "footer")
            equations = sum(
                word.read(part).count(_OLD_EQUATION) for part in word.namelist() if _is_text(part)
            )
            drawn = [charts.of_part(part, word.read(part)) for part in word.namelist() if _is_chart(part)]
    except (KeyError, ValueError, AttributeError, IndexError, OSError, SyntaxError) as error:
        raise ToolError(f"{path.name} is damaged: a part of it is missing or wrong: {error}.") from error
    beyond = list(drawn)
    if equations:
        beyond.append(f"[{some(equations, 'equation')} of an older program in it cannot be shown here.]")
    if files := office_xml.embedded(content):
        beyond.append(f"[Files in it that are not shown: {', '.join(files)}.]")
    return _Word(written, shown.found, facts, headers, footers, "\n\n".join(beyond))


def _with_authors(document: Any) -> Any:
    import cobble

    named = [
        cobble.copy(one, author_initials=f"{one.author_name} ") if one.author_name else one
        for one in document.comments
    ]
    return cobble.copy(document, comments=named)


def _other(path: Path, kind: str, password: str, pictures: Pictures | None) -> _Word:
    content = path.read_bytes()
    headers: list[str] = []
    footers: list[str] = []
    facts: dict[str, Any] = {"title": "", "author": ""}
    objects = 0
    if kind == "odt":
        package = office(path, "odt")
        try:
            content, objects = open_document.readable_text(package)
            facts = open_document.properties(package)
            headers = open_document.around(package, "header")
            footers = open_document.around(package, "footer")
        except (KeyError, ValueError, SyntaxError, AttributeError) as error:
            raise ToolError(f"{path.name} is damaged: a part of it is missing or wrong: {error}.") from error
    elif kind == "rtf":
        content = rich_text.with_scripts(content)
    elif kind == "doc":
        if password:
            content = decrypted(io.BytesIO(content), path.name, password).getvalue()
        facts = {name: office_model.properties(content)[name] for name in ("title", "author")}
    document = office_model.model(content, kind, path.name)
    renderer = office_model.Renderer(document, pictures, repeats_letters=kind != "odt")
    html = renderer.html(document.blocks) + renderer.notes()
    beyond = _left_out(content) if kind == "doc" else ""
    if objects:
        beyond = f"[{some(objects, 'embedded chart or sheet')} in it cannot be shown here.]"
    if kind == "rtf":
        beside = rich_text.beside(content, path.name)
        headers, footers, beyond = beside.headers, beside.footers, "\n".join(beside.comments)
    return _Word(html, renderer.images, facts, headers, footers, beyond)


def _left_out(content: bytes) -> str:
    with olefile.OleFileIO(io.BytesIO(content)) as compound:
        streams = [compound.openstream(name).read() for name in _DOC_STREAMS if compound.exists(name)]
    head = streams[0][:_DOC_HEAD_BYTES]
    found = [what for what, place in _DOC_PARTS.items() if int.from_bytes(head[place : place + 4], "little")]
    notes = (
        [f"[What it has of {' and '.join(found)} is not shown: of .doc it cannot be read here.]"]
        if found
        else []
    )
    if any(mark in stream for stream in streams for mark in _DOC_RAISED):
        notes.append("[Superscripts of .doc are not marked: 1020 may be 10 to the 20.]")
    return "\n\n".join(notes)


class _Shown:
    def __init__(self, pictures: Pictures | None):
        self._pictures = pictures
        self.found: list[str] = []

    def __call__(self, image: Any) -> list[Any]:
        from mammoth import html

        path = None
        if self._pictures is not None:
            # What is not in the file has no place to be shown from.
            with contextlib.suppress(KeyError, ValueError), image.open() as file:
                path = self._pictures.keep(file.read(), image.content_type)
        name = " ".join((image.alt_text or "picture").split())
        self.found.append(f"![{name}]({path})" if path else f"[Picture: {name}]")
        return [html.text(self.found[-1])]


def _around(word: zipfile.ZipFile, kind: str) -> list[str]:
    from defusedxml.ElementTree import fromstring

    texts: dict[str, None] = {}
    for part in sorted(word.namelist()):
        if part.startswith(f"word/{kind}") and part.endswith(".xml"):
            paragraphs = fromstring(word.read(part)).iter(f"{_WORD}p")
            lines = map(office_xml.word_line, paragraphs)
            texts[" / ".join(filter(None, lines))] = None
    return [text for text in texts if text]


def _is_text(part: str) -> bool:
    return part.startswith("word/document") and part.endswith(".xml")


def _is_chart(part: str) -> bool:
    return part.startswith("word/charts/chart") and part.endswith(".xml")


def _metadata(word: zipfile.ZipFile, what: str) -> str:
    from defusedxml.ElementTree import fromstring

    if "docProps/core.xml" not in word.namelist():
        return ""
    return fromstring(word.read("docProps/core.xml")).findtext(f"{{{_DUBLIN_CORE}}}{what}") or ""
