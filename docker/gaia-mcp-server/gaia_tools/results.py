"""What every tool answers: text for a model to read, the same as structured content, and never too much of it."""

import json
from typing import Any, Literal

from mcp.types import CallToolResult, TextContent

OutputFormat = Literal["markdown", "json", "text"]
MAX_CHARACTERS = 30_000


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


def page(text: str, start: int, limit: int = MAX_CHARACTERS) -> tuple[str, int | None]:
    """``limit`` characters of ``text`` from ``start`` on, with a note of what follows, and where that starts."""
    end = start + limit
    if end >= len(text):
        return text[start:], None
    note = f"\n[... {len(text) - end} of {len(text)} characters follow: ask again with start={end} ...]"
    return text[start:end] + note, end
