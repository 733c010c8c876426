"""What every tool answers: text for a model to read, the short facts of it for a program, and never too much.

Frameworks that hand both to a model would have it read everything twice. So whatever is long stands in the text alone.
"""

import json
from typing import Any, Literal

from mcp.types import CallToolResult, TextContent

OutputFormat = Literal["markdown", "json", "text"]
MAX_CHARACTERS = 30_000
# What the structured content may repeat of the text.
MAX_FACT_CHARS = 200
MAX_LIST_CHARS = 1_000  # of a list or a mapping of facts, as JSON


def answer(text: str, structured: dict[str, Any], output_format: OutputFormat = "markdown") -> CallToolResult:
    """A result: ``text``, and as structured content the fields of ``structured`` that are facts and no long texts.

    As JSON, the text is all of ``structured``, and there is no structured content.
    """
    if output_format == "json":
        whole = json.dumps(structured, ensure_ascii=False, indent=1)
        return CallToolResult(content=[TextContent(type="text", text=whole)])
    facts = {name: value for name, value in structured.items() if _is_fact(value)}
    return CallToolResult(content=[TextContent(type="text", text=text)], structuredContent=facts)


def _is_fact(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) <= MAX_FACT_CHARS
    if not isinstance(value, list | tuple | dict):
        return True
    parts = value.values() if isinstance(value, dict) else value
    return len(json.dumps(value, ensure_ascii=False)) <= MAX_LIST_CHARS and all(map(_is_fact, parts))


def cut(text: str, limit: int = MAX_CHARACTERS, hint: str = "") -> tuple[str, bool]:
    if len(text) <= limit:
        return text, False
    half = limit // 2
    left_out = len(text) - 2 * half
    return f"{text[:half]}\n[... {left_out} characters left out{hint} ...]\n{text[-half:]}", True


def page(text: str, start: int, limit: int = MAX_CHARACTERS) -> tuple[str, int | None]:
    end = start + limit
    if end >= len(text):
        return text[start:], None
    note = f"\n[... {len(text) - end} of {len(text)} characters follow: ask again with start={end} ...]"
    return text[start:end] + note, end
