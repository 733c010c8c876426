"""documents-html-server: saved web pages."""

import contextlib
import re
from pathlib import Path
from typing import Annotated, Any

from mcp.server.fastmcp import FastMCP
from mcp.types import CallToolResult
from pydantic import Field

from gaia_tools.charsets import decode, doubt
from gaia_tools.documents import FOR_HTML, FilePath, Format, Start, document, formats, ready
from gaia_tools.files import readable
from gaia_tools.isolated import isolated
from gaia_tools.kinds import expect
from gaia_tools.page_markdown import markdown, plain, title, tree

server = FastMCP("documents-html-server", log_level="WARNING")
_FORMATS = {".html .htm .xhtml": "web pages"}
_MAX_BYTES = 20 << 20
_DECLARATION = re.compile(r"^\s*<\?xml[^>]*\?>")


@server.tool()
async def extract_html_content(
    file_path: FilePath,
    output_format: Format = "markdown",
    include_links: Annotated[bool, Field(description="Write where links lead.")] = True,
    encoding: Annotated[str, Field(description="Its encoding; 'auto' finds out.")] = "auto",
    start: Start = 0,
) -> CallToolResult:
    """Read a saved web page as Markdown: headings, lists, links, and tables, whose merged cells repeat their text.

    What is hidden in scripts is not shown; extract_text_content shows the page's source.
    """
    path = readable(file_path, _MAX_BYTES)
    ready(*FOR_HTML)
    content, facts = await isolated(_read, path, encoding, include_links)
    about = facts["title"] or "no title"
    if facts["other_encodings"]:
        about += f"; {doubt(facts['encoding'], facts['other_encodings'])}"
    return document(path, content, facts, output_format, start, about=about)


@server.tool()
async def list_supported_formats() -> CallToolResult:
    """The kinds of files that are read as web pages."""
    return formats(_FORMATS)


def _read(path: Path, encoding: str, include_links: bool) -> tuple[str, dict[str, Any]]:
    from bs4.dammit import EncodingDetector

    expect(path, "html", "text")
    page = path.read_bytes()
    declared = EncodingDetector.find_declared_encoding(page, is_html=True)
    if encoding == "auto" and declared:
        with contextlib.suppress(LookupError, UnicodeDecodeError):
            page.decode(declared)
            encoding = declared
    decoded = decode(page, encoding, path.name)
    # lxml does not take text that names another encoding than its own.
    text = _DECLARATION.sub("", decoded.text)
    facts = {
        "title": title(text),
        "encoding": decoded.encoding,
        "other_encodings": list(decoded.alternatives),
    }
    try:
        return markdown(tree(text, images=True, links=include_links)), facts
    except RecursionError:
        return plain(text), facts
