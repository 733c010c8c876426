"""documents-txt-server: text files of any encoding."""

from pathlib import Path
from typing import Annotated

from mcp.server.fastmcp import FastMCP
from mcp.server.fastmcp.exceptions import ToolError
from mcp.types import CallToolResult
from pydantic import Field

from gaia_tools.charsets import Decoded, decode, doubt
from gaia_tools.documents import FilePath, Format, Start, document, formats, some
from gaia_tools.files import readable
from gaia_tools.isolated import isolated
from gaia_tools.kinds import expect
from gaia_tools.results import MAX_CHARACTERS

server = FastMCP("documents-txt-server", log_level="WARNING")
_FORMATS = {
    ".txt .md .log .rst .tex": "text",
    ".csv .tsv": "tables, as they are written",
    ".json .jsonl .jsonld .yaml .yml .toml .ini": "data",
    ".xml .html .svg": "markup, as it is written",
    ".py .js .c .java .sh and other programs": "source code",
    ".pdb .cif .fasta": "data of chemistry and biology",
    ".srt .vtt": "subtitles",
}
_MAX_BYTES = 50 << 20


@server.tool()
async def extract_text_content(
    file_path: FilePath,
    output_format: Format = "markdown",
    encoding: Annotated[str, Field(description="Its encoding; 'auto' finds out.")] = "auto",
    max_content_length: Annotated[
        int, Field(description="Most characters to return.", ge=100, le=200_000)
    ] = MAX_CHARACTERS,
    start: Start = 0,
) -> CallToolResult:
    """Read a text file, whatever its encoding, and return its content."""
    path = readable(file_path, _MAX_BYTES)
    decoded = await isolated(_read, path, encoding)
    text = decoded.text
    lines = text.count("\n") + bool(text and not text.endswith("\n"))
    facts = {
        "encoding": decoded.encoding,
        "other_encodings": list(decoded.alternatives),
        "bytes": path.stat().st_size,
        "lines": lines,
    }
    about = f"{some(lines, 'line')}, {doubt(decoded.encoding, decoded.alternatives)}"
    if text.startswith("{\\rtf"):
        about += "; its codes are shown: extract_docx_content shows what it says"
    return document(path, text, facts, output_format, start, max_content_length, about)


@server.tool()
async def list_supported_formats() -> CallToolResult:
    """The kinds of files that are read as text."""
    return formats(_FORMATS)


def _read(path: Path, encoding: str) -> Decoded:
    if encoding == "auto":
        expect(path, "text", "html", "rtf")
    decoded = decode(path.read_bytes(), encoding, path.name)
    if not decoded.text.strip("\ufeff\0 \t\r\n"):
        raise ToolError(f"{path.name} has no text in it.")
    return decoded
