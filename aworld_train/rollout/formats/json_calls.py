"""Formats that write calls as JSON objects with a name and arguments, between marks or without any."""

import re
from collections.abc import Callable
from typing import Any

from aworld_train.episode.tool_calls import ToolCall
from aworld_train.rollout.formats.call_format import (
    NONE,
    CallFormat,
    Calls,
    after,
    call_of,
    json_at,
    skip_space,
)
from aworld_train.rollout.formats.schemas import Tools

_NAMES = ("name", "tool_name")
_ARGUMENTS = ("arguments", "parameters")
_IDS = ("id", "tool_call_id")
_ToCall = Callable[[dict[str, Any]], ToolCall | None]


def _named(value: dict[str, Any]) -> ToolCall | None:
    name, call_id = (next((value[key] for key in keys if key in value), None) for keys in (_NAMES, _IDS))
    arguments = next((value[key] for key in _ARGUMENTS if key in value), ...)
    return None if arguments is ... else call_of(name, arguments, call_id)


def _keyed(value: dict[str, Any]) -> ToolCall | None:
    """A call whose name is the object's only key."""
    return call_of(*next(iter(value.items()))) if len(value) == 1 else None


def _objects(
    text: str, position: int, closes: tuple[str, ...] = (), to_call: _ToCall = _named
) -> Calls | None:
    """Objects, or lists of objects, up to a closing mark; without closing marks, one value."""
    calls: list[ToolCall] = []
    while True:
        end = after(text, position, *closes) if calls else None
        if calls and (end is not None or not closes):
            return Calls(calls, position if end is None else end)
        found = json_at(text, position)
        values = found[0] if found and isinstance(found[0], list) else [found[0]] if found else []
        read = [to_call(value) if isinstance(value, dict) else None for value in values]
        if found is None or not read or None in read:
            return None
        calls += [call for call in read if call is not None]
        position = found[1]


def _bare(text: str, begin: re.Match[str], tools: Tools) -> Calls | None:
    """Objects or a list of objects without marks; several are divided by spaces or semicolons.

    An object that is not a call is an answer in JSON.
    """
    calls: list[ToolCall] = []
    position = begin.start() if begin["bare"] else skip_space(text, begin.end())
    while True:
        section = _objects(text, position)
        if section is None:
            return NONE if begin["bare"] and not calls and json_at(text, position) else None
        calls += section.calls
        position = skip_space(text, section.end)
        if text.startswith(";", position):
            position = skip_space(text, position + 1)
        if not text.startswith("{", position):
            return Calls(calls, position)


def _format(name: str, families: str, opens: str, *closes: str, to_call: _ToCall = _named) -> CallFormat:
    def read(text: str, begin: re.Match[str], tools: Tools) -> Calls | None:
        return _objects(text, begin.end(), closes, to_call)

    return CallFormat(name, opens, read, families)


_LLAMA = r'<\|python_tag\|>|(?P<bare>(?:\[\s{0,9})?\{\s{0,9}"(?:name|type)"\s{0,9}:)'

FORMATS = (
    _format("hermes", "Qwen 2.5 and 3, Hermes, Granite 4, Bielik, MiMo", "<tool_call>", "</tool_call>"),
    _format("granite", "Granite 3", r"<\|tool_call\|>|<tool_call>", "<|/tool_call|>", ""),
    _format("phi4", "Phi-4", r"<\|tool_call\|>", "<|/tool_call|>"),
    _format("phi4_mini", "Phi-4-mini", r"(?P<bare>functools)(?=\[)"),
    _format("granite_function_call", "Granite 20B", "<function_call>"),
    _format("tool_calls", "Hunyuan, MiniMax M1, Apriel", "<tool_calls>", "</tool_calls>"),
    _format("nemotron", "Nemotron Nano 2", "<TOOLCALL>", "</TOOLCALL>"),
    _format("internlm", "InternLM 2", r"<\|action_start\|>\s{0,9}<\|plugin\|>", "<|action_end|>"),
    _format("command", "Command R7B and A", r"<\|START_ACTION\|>", "<|END_ACTION|>"),
    _format("gigachat", "GigaChat 3", r"<\|function_call\|>|function call<\|role_sep\|>"),
    _format("apertus", "Apertus", r"<\|tools_prefix\|>", "<|tools_suffix|>", to_call=_keyed),
    CallFormat("llama3_json", _LLAMA, _bare, "Llama 3 and 4, xLAM"),
)
