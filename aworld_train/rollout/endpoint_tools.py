"""Tools as endpoints take them, which refuse a whole request for one name or one schema in an old draft.

https://platform.openai.com/docs/api-reference/chat/create#chat-create-tools
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from aworld_train.episode.message import Message
from aworld_train.episode.tool_calls import ToolCall
from aworld_train.serving.tool_results import valid_parameters

_MAX_LENGTH = 64
_DIGEST_LENGTH = 8
_NAME = re.compile(rf"[A-Za-z0-9_-]{{1,{_MAX_LENGTH}}}")
_COMBINATIONS = ("anyOf", "oneOf", "allOf")


def fitted_names(names: Sequence[str]) -> dict[str, str]:
    """The names that endpoints refuse, and those that are sent in their place."""
    fitted: dict[str, str] = {}
    for name in names:
        if not _NAME.fullmatch(name):
            short = re.sub(r"[^A-Za-z0-9_-]", "_", name)[:_MAX_LENGTH]
            if len(name) > _MAX_LENGTH or short in {*names, *fitted.values()} or not short:
                digest = hashlib.sha256(name.encode(errors="replace")).hexdigest()[:_DIGEST_LENGTH]
                short = f"{short[: _MAX_LENGTH - _DIGEST_LENGTH - 1]}_{digest}"
            fitted[name] = short
    return fitted


def fitted_tool(tool: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    function = tool["function"]
    name = names.get(function["name"], function["name"])
    parameters = _without_combinations(valid_parameters(function.get("parameters")))
    return {**tool, "function": {**function, "name": name, "parameters": _newer(parameters)}}


def _without_combinations(schema: dict[str, Any]) -> dict[str, Any]:
    """An object whose alternatives are properties of one object; endpoints take none at the top."""
    fitted = {
        key: value for key, value in schema.items() if key not in (*_COMBINATIONS, "not", "enum", "$schema")
    }
    for key in _COMBINATIONS:
        for part in schema.get(key) or ():
            if isinstance(part, dict) and isinstance(part.get("properties"), dict):
                fitted["properties"] = part["properties"] | fitted["properties"]
    return fitted


def _newer(schema: Any) -> Any:
    """A schema of JSON Schema's draft 4 as of later ones: exclusive limits are numbers."""
    if isinstance(schema, list):
        return [_newer(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    newer = {key: _newer(value) for key, value in schema.items()}
    for limit, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if isinstance(is_exclusive := newer.get(exclusive), bool):
            del newer[exclusive]
            if is_exclusive and limit in newer:
                newer[exclusive] = newer.pop(limit)
    return newer


def renamed(message: Message, names: Mapping[str, str]) -> Message:
    if not names or not (message.tool_calls or message.name in names):
        return message
    calls = renamed_calls(message.tool_calls, names)
    return replace(message, tool_calls=calls, name=names.get(message.name, message.name))


def renamed_calls(calls: Sequence[ToolCall], names: Mapping[str, str]) -> tuple[ToolCall, ...]:
    return tuple(replace(call, name=names[call.name]) if call.name in names else call for call in calls)
