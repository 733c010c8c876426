"""Tool calls that smolagents writes into the assistant's text when it sends a turn back.

It sends neither ``tool_calls`` nor tool messages: after the text of the turn comes a line ``Calling tools:`` and the
calls as a Python list. Read as calls again, the turn is the one that was sampled. A code agent's call of the Python
interpreter holds the code that is in the turn's text already, so it is not a call of the model.
"""

import ast
import json
from typing import Any

from aworld_train.episode.tool_calls import ToolCall

_HEAD = "Calling tools:\n["
_INTERPRETER = "python_interpreter"
_MAX_CHARS = 200_000


def split_calls(content: str) -> tuple[str, tuple[ToolCall, ...]]:
    if _HEAD not in content or len(content) > _MAX_CHARS:
        return content, ()
    text, _, written = content.rpartition(_HEAD)
    try:
        items = ast.literal_eval("[" + written)
        calls = [_call(item) for item in items]
    except (ValueError, SyntaxError, TypeError, KeyError, AttributeError, MemoryError, RecursionError):
        return content, ()
    return text.rstrip("\n"), tuple(call for call in calls if call is not None)


def _call(item: Any) -> ToolCall | None:
    function = item["function"]
    name, arguments = function["name"], function["arguments"]
    if name == _INTERPRETER and isinstance(arguments, str):
        return None
    return ToolCall(
        name, arguments if isinstance(arguments, str) else json.dumps(arguments), str(item.get("id") or "")
    )
