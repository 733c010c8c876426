"""documents-docx-server: Word files.

mammoth knows what is in the text: lists, notes, comments, text boxes, insertions. Headers and footers are beside it.
"""

import contextlib
import zipfile
from pathlib import Path
from typing import Annotated, Any

from mcp.server.fastmcp import FastMCP
from mcp.server.fastmcp.exceptions import ToolError
from mcp.types import CallToolResult
from pydantic import Field

from gaia_tools.document_pictures import Pictures
from gaia_tools.documents import FOR_HTML, FilePath, Format, Password, Start, document, formats, ready, some
from gaia_tools.files import readable
from gaia_tools.isolated import isolated
from gaia_tools.page_markdown import markdown, tree
from gaia_tools.zips import office

server = FastMCP("documents-docx-server", log_level="WARNING")
_FORMATS = {".docx .docm .dotx": "Word"}
_MAX_BYTES = 100 << 20
_STYLES = """
p[style-name='Title'] => h1:fresh
p[style-name='Subtitle'] => h2:fresh
comment-reference => sup
"""
_WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_DUBLIN_CORE = "http://purl.org/dc/elements/1.1/"
_EQUATION = b"<m:oMath>"


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
    """Read a Word file as Markdown, in its order: headings, lists, tables, notes, comments, headers and footers.

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


def _read(
    path: Path, password: str, images: bool, tables: bool, headers_footers: bool, structure: bool
) -> tuple[str, dict[str, Any]]:
    import mammoth
    from bs4 import BeautifulSoup

    content = office(path, "docx", password)
    pictures = Pictures(path) if images else None
    shown = _Shown(pictures)
    try:
        written = mammoth.convert_to_html(
            content, style_map=_STYLES, convert_image=shown, transform_document=_with_authors
        ).value
        with zipfile.ZipFile(content) as word:
            facts: dict[str, Any] = {"title": _metadata(word, "title"), "author": _metadata(word, "creator")}
            headers, footers = _around(word, "header"), _around(word, "footer")
            equations = word.read("word/document.xml").count(_EQUATION)
    except (KeyError, ValueError, AttributeError, IndexError, OSError, SyntaxError) as error:
        raise ToolError(f"{path.name} is damaged: a part of it is missing or wrong: {error}.") from error
    html = BeautifulSoup(written, "lxml")
    headings = html.find_all(["h1", "h2", "h3", "h4", "h5", "h6"])
    counts = {"headings": len(headings), "tables": len(html.find_all("table")), "images": len(shown.found)}
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
        facts |= {"headers": headers, "footers": footers}
        parts = [
            *(f"[Header: {line}]" for line in headers),
            *parts,
            *(f"[Footer: {line}]" for line in footers),
        ]
    if structure:
        facts["structure"] = outline
        about = ", ".join(some(number, what.removesuffix("s")) for what, number in counts.items())
        parts.insert(0, "\n".join([f"Structure: {about}", *outline]))
    if pictures:
        facts["image_files"] = pictures.paths
    if equations:
        parts.append(f"[{some(equations, 'equation')} in it cannot be shown here.]")
    return "\n\n".join(part for part in parts if part), facts


class _Shown:
    """Pictures as text where they stand, with their paths where they are written."""

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


def _with_authors(document: Any) -> Any:
    """The document, with names where its comments have the initials of their authors."""
    import cobble

    named = [
        cobble.copy(one, author_initials=f"{one.author_name} ") if one.author_name else one
        for one in document.comments
    ]
    return cobble.copy(document, comments=named)


def _around(word: zipfile.ZipFile, kind: str) -> list[str]:
    """The different headers or footers of all sections, each on one line."""
    from defusedxml.ElementTree import fromstring

    texts: dict[str, None] = {}
    for part in sorted(word.namelist()):
        if part.startswith(f"word/{kind}") and part.endswith(".xml"):
            paragraphs = fromstring(word.read(part)).iter(f"{_WORD}p")
            lines = ("".join(one.text or "" for one in line.iter(f"{_WORD}t")).strip() for line in paragraphs)
            texts[" / ".join(filter(None, lines))] = None
    return [text for text in texts if text]


def _metadata(word: zipfile.ZipFile, what: str) -> str:
    """A property of the document, such as its title."""
    from defusedxml.ElementTree import fromstring

    if "docProps/core.xml" not in word.namelist():
        return ""
    return fromstring(word.read("docProps/core.xml")).findtext(f"{{{_DUBLIN_CORE}}}{what}") or ""
