"""What every tool answers: text for a model to read, the same as structured content, and never too much of it."""

import json
import os
from pathlib import Path
from typing import Any, Literal

from mcp.server.fastmcp.exceptions import ToolError
from mcp.types import CallToolResult, TextContent

OutputFormat = Literal["markdown", "json", "text"]
MAX_CHARACTERS = 30_000
ATTACHMENTS = Path("/attachments")
"""Where `env up --data` puts the files of a benchmark, to be read."""


def answer(text: str, structured: dict[str, Any], output_format: OutputFormat = "markdown") -> CallToolResult:
    """A result: ``text``, or the structured content written as JSON, and the structured content itself."""
    shown = json.dumps(structured, ensure_ascii=False, indent=1) if output_format == "json" else text
    return CallToolResult(content=[TextContent(type="text", text=shown)], structuredContent=structured)


def cut(text: str, limit: int = MAX_CHARACTERS, hint: str = "") -> tuple[str, bool]:
    """``text`` with its middle left out where it is longer than ``limit`` characters, and whether it was."""
    if len(text) <= limit:
        return text, False
    half = limit // 2
    left_out = len(text) - 2 * half
    return f"{text[:half]}\n[... {left_out} characters left out{hint} ...]\n{text[-half:]}", True


def workspace() -> Path:
    """The folder of this session."""
    return Path(os.environ.get("WORKSPACE", ".")).resolve()


def readable(file_path: str) -> Path:
    """The file of that name in the workspace or among the attachments.

    Raises:
        ToolError: It is elsewhere, or there is none; the message says what there is.
    """
    roots = [workspace(), ATTACHMENTS]
    path = (workspace() / file_path).resolve()
    if not any(path.is_relative_to(root) for root in roots):
        raise ToolError(f"{file_path} is outside {' and '.join(map(str, roots))}, where files can be read.")
    if not path.is_file():
        raise ToolError(f"There is no file {file_path}. There is: {_listing(roots) or 'nothing yet'}.")
    return path


def _listing(roots: list[Path], most: int = 20) -> str:
    found = [
        str(path) for root in roots if root.is_dir() for path in sorted(root.rglob("*")) if path.is_file()
    ]
    more = f", and {len(found) - most} more" if len(found) > most else ""
    return ", ".join(found[:most]) + more
