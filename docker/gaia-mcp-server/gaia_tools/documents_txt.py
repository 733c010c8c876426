"""documents-txt-server: text files of any encoding."""

import asyncio
from typing import Annotated

from charset_normalizer import from_bytes
from mcp.server.fastmcp import FastMCP
from mcp.server.fastmcp.exceptions import ToolError
from mcp.types import CallToolResult
from pydantic import Field

from gaia_tools.files import readable
from gaia_tools.results import MAX_CHARACTERS, OutputFormat, answer, cut

server = FastMCP("documents-txt-server", log_level="WARNING")
_FORMATS = (
    ".txt",
    ".md",
    ".csv",
    ".tsv",
    ".json",
    ".jsonl",
    ".xml",
    ".html",
    ".yaml",
    ".yml",
    ".log",
    ".py",
    ".pdb",
)
_MOST_BYTES = 50 << 20


@server.tool()
async def extract_text_content(
    file_path: Annotated[str, Field(description="A file in the workspace or among the attachments.")],
    output_format: Annotated[OutputFormat, Field(description="How the result is written.")] = "markdown",
    encoding: Annotated[str, Field(description="Its encoding; 'auto' finds out.")] = "auto",
    max_content_length: Annotated[
        int, Field(description="Most characters to return.", ge=100, le=200_000)
    ] = MAX_CHARACTERS,
) -> CallToolResult:
    """Read a text file, whatever its encoding, and return its content."""
    path = readable(file_path)
    size = path.stat().st_size
    if size > _MOST_BYTES:
        raise ToolError(f"{file_path} has {size >> 20} MB; more than {_MOST_BYTES >> 20} MB are not read.")
    text, found = await asyncio.to_thread(_decode, path.read_bytes(), encoding, file_path)
    shown, was_cut = cut(text, max_content_length, "; raise max_content_length to see more")
    structured = {
        "file": str(path),
        "encoding": found,
        "bytes": size,
        "characters": len(text),
        "lines": text.count("\n") + bool(text and not text.endswith("\n")),
        "cut": was_cut,
        "content": shown,
    }
    heading = f"{path.name}: {structured['lines']} lines, {found}\n\n" if output_format == "markdown" else ""
    return answer(heading + shown, structured, output_format)


@server.tool()
async def list_supported_formats() -> CallToolResult:
    """The kinds of files that are read as text."""
    return answer(", ".join(_FORMATS) + ", and other text files", {"formats": list(_FORMATS)})


def _decode(content: bytes, encoding: str, name: str) -> tuple[str, str]:
    if encoding != "auto":
        try:
            return content.decode(encoding), encoding
        except (LookupError, UnicodeDecodeError) as error:
            raise ToolError(f"{name} is not {encoding}: {error}. Use encoding='auto'.") from error
    best = from_bytes(content).best()
    if best is None:
        raise ToolError(f"{name} is no text file: no encoding fits it.")
    return str(best), best.encoding
