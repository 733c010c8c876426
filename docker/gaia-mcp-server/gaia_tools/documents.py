"""What the document servers have in common: their parameters, and results that are read page by page."""

import importlib
from pathlib import Path
from typing import Annotated, Any

from mcp.server.fastmcp.exceptions import ToolError
from mcp.types import CallToolResult
from pydantic import Field

from gaia_tools.results import MAX_CHARACTERS, OutputFormat, answer, page

FilePath = Annotated[str, Field(description="A file in the workspace or among the attachments.")]
Format = Annotated[
    OutputFormat,
    Field(
        description="'markdown': the content under a line about the file; 'text': the content alone; 'json': all that"
        " is known about it, with the content."
    ),
]
Start = Annotated[
    int,
    Field(description="First character of the content to return, to read on after a part of it.", ge=0),
]
FOR_HTML = ("bs4", "lxml.html", "markdownify")  # what page_markdown imports
Password = Annotated[str, Field(description="Of a protected file.")]


def document(
    path: Path,
    content: str,
    facts: dict[str, Any],
    output_format: OutputFormat,
    start: int = 0,
    limit: int = MAX_CHARACTERS,
    about: str = "",
) -> CallToolResult:
    """A part of a document's content, from ``start`` on, under a line that says what it is (``about``)."""
    if start and start >= len(content):
        raise ToolError(f"The content of {path.name} ends at character {len(content)}; start is {start}.")
    shown, following = page(content, start, limit)
    structured = {
        "file": str(path),
        **facts,
        "characters": len(content),
        "next_start": following,
        "content": shown,
    }
    heading = (
        f"{path.name}: {about or f'{len(content)} characters'}\n\n" if output_format == "markdown" else ""
    )
    return answer(heading + shown, structured, output_format)


def formats(which: dict[str, str]) -> CallToolResult:
    """The answer of `list_supported_formats`: endings of names, each with what such a file is."""
    lines = "\n".join(f"- {ending}: {what}" for ending, what in which.items())
    return answer(lines, {"formats": list(which), "descriptions": which})


def ready(*modules: str) -> None:
    """Import what a function needs before the process of its own is forked, so that it is done once."""
    for name in modules:
        importlib.import_module(name)


def some(count: int, what: str) -> str:
    return f"{count} {what}" + ("" if count == 1 else "s")
