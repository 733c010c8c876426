"""documents-epub-server: books."""

import io
import posixpath
import re
import zipfile
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import unquote
from xml.etree.ElementTree import Element, ParseError

from mcp.server.fastmcp import FastMCP
from mcp.server.fastmcp.exceptions import ToolError
from mcp.types import CallToolResult
from pydantic import Field

from gaia_tools.charsets import decode
from gaia_tools.documents import FOR_HTML, FilePath, Format, Start, document, formats, ready, some
from gaia_tools.files import readable
from gaia_tools.isolated import isolated
from gaia_tools.kinds import expect
from gaia_tools.page_markdown import markdown, plain, tree
from gaia_tools.zips import opened, with_parts

server = FastMCP("documents-epub-server", log_level="WARNING")
_FORMATS = {".epub": "books"}
# How fonts are obfuscated (https://www.w3.org/TR/epub-33/#sec-font-obfuscation); all other encryption is for good.
_FONTS = ("http://www.idpf.org/2008/embedding", "http://ns.adobe.com/pdf/enc#RC")
_MAX_NAME_CHARS = 80
_DECLARATION = re.compile(r"^\s*<\?xml[^>]*\?>")


@server.tool()
async def extract_epub_content(
    file_path: FilePath,
    output_format: Format = "markdown",
    chapter: Annotated[
        int,
        Field(description="Number of the chapter to read, from the list in the result; 0 reads all.", ge=0),
    ] = 0,
    start: Start = 0,
) -> CallToolResult:
    """Read a book as Markdown, and list its chapters."""
    path = readable(file_path)
    ready(*FOR_HTML)
    content, facts = await isolated(_read, path, chapter)
    chapters = facts["chapters"]
    about = f"{facts['title'] or 'no title'}{' by ' + facts['author'] if facts['author'] else ''}, "
    about += some(len(chapters), "chapter")
    if not start and not chapter:
        about += "".join(
            f"\n{n}. {one['name']} ({one['characters']} characters)" for n, one in enumerate(chapters, 1)
        )
    return document(path, content, facts, output_format, start, about=about)


@server.tool()
async def list_supported_formats() -> CallToolResult:
    """The kinds of files that are read as books."""
    return formats(_FORMATS)


def _read(path: Path, chapter: int) -> tuple[str, dict[str, Any]]:
    expect(path, "epub")
    with opened(path):  # which checks it
        pass
    try:
        with zipfile.ZipFile(with_parts(io.BytesIO(path.read_bytes()), {})) as book:
            return _book(book, path.name, chapter)
    except (KeyError, ParseError, zipfile.BadZipFile, EOFError, ValueError) as error:
        raise ToolError(f"{path.name} is damaged, or no EPUB book: {error}.") from error
    except RuntimeError as error:
        raise ToolError(f"{path.name} is encrypted and cannot be read.") from error


def _book(book: zipfile.ZipFile, name: str, chapter: int) -> tuple[str, dict[str, Any]]:
    _refuse_encrypted(book, name)
    rootfile = _xml(book, "META-INF/container.xml").find(".//{*}rootfile")
    if rootfile is None:
        raise ValueError("its container names no package")
    root = rootfile.get("full-path", "")
    package = _xml(book, root)
    items = {item.get("id"): item.get("href", "") for item in package.findall("{*}manifest/{*}item")}
    order = [items.get(item.get("idref")) for item in package.findall("{*}spine/{*}itemref")]
    names = set(book.namelist())
    chapters, texts = [], []
    for href in filter(None, order):
        part = posixpath.normpath(posixpath.join(posixpath.dirname(root), unquote(href.partition("#")[0])))
        if part not in names:
            continue
        page = decode(book.read(part), "auto", part).text
        text = _text(page)
        if text:
            chapters.append({"name": _heading(text) or posixpath.basename(part), "characters": len(text)})
            texts.append(text)
    if chapter > len(texts):
        raise ToolError(f"{name} has {some(len(texts), 'chapter')}; there is no chapter {chapter}.")
    facts = {
        "title": _metadata(package, "title"),
        "author": _metadata(package, "creator"),
        "language": _metadata(package, "language"),
        "chapters": chapters,
    }
    return texts[chapter - 1] if chapter else "\n\n".join(texts), facts


def _text(page: str) -> str:
    page = _DECLARATION.sub("", page)
    try:
        return markdown(tree(page))
    except RecursionError:
        return plain(page)


def _heading(text: str) -> str:
    lines = text.splitlines()
    found = next((line for line in lines if line.startswith("#")), lines[0])
    return found.lstrip("# ")[:_MAX_NAME_CHARS]


def _refuse_encrypted(book: zipfile.ZipFile, name: str) -> None:
    if "META-INF/encryption.xml" not in book.namelist():
        return
    methods = _xml(book, "META-INF/encryption.xml").findall(".//{*}EncryptionMethod")
    if any(method.get("Algorithm") not in _FONTS for method in methods):
        raise ToolError(f"{name} is protected against copying (DRM) and cannot be read.")


def _xml(book: zipfile.ZipFile, part: str) -> Element:
    from defusedxml import DefusedXmlException
    from defusedxml.ElementTree import fromstring

    try:
        root: Element = fromstring(book.read(part))
    except DefusedXmlException as error:
        raise ToolError(f"It is not opened: {part} in it declares XML entities.") from error
    return root


def _metadata(package: Element, what: str) -> str:
    found = package.findall(f"{{*}}metadata/{{http://purl.org/dc/elements/1.1/}}{what}")
    return ", ".join(one.text.strip() for one in found if one.text)
