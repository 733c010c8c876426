"""Formats that write calls as expressions: ``[name(key='value')]`` and Gemma's ``call:name{key:value}``."""

import re
from dataclasses import dataclass
from typing import Any

from aworld_train.episode.tool_calls import ToolCall
from aworld_train.rollout.formats.call_format import NONE, CallFormat, Calls, after, call_of, skip_space
from aworld_train.rollout.formats.literals import Notation, delimited, pairs_at, python_string_at
from aworld_train.rollout.formats.schemas import Tools, converted, parameter_schemas, tool_names

_PYTHON = Notation(python_string_at)
_NAME = re.compile(r"\s*(?P<name>[A-Za-z_][\w.]{0,199})\s*\(")
_GEMMA_NAME = re.compile(r"\s*call:(?P<name>[^\s{<]{1,200})\s*\{")


def _typed(name: str, arguments: dict[str, Any], tools: Tools) -> dict[str, Any]:
    """The arguments, with strings converted where the tool's schema has another type."""
    schemas = parameter_schemas(tools, name)
    return {
        key: converted(value, schemas[key]) if isinstance(value, str) and schemas.get(key) else value
        for key, value in arguments.items()
    }


def _expressions(text: str, position: int, tools: Tools) -> Calls | None:
    position = skip_space(text, position)
    if not text.startswith("[", position):
        return None
    calls: list[ToolCall] = []
    position += 1
    while head := _NAME.match(text, position):
        arguments = pairs_at(text, head.end(), ")", "=", _PYTHON)
        call = call_of(head["name"], _typed(head["name"], arguments[0], tools)) if arguments else None
        if arguments is None or call is None:
            return None
        calls.append(call)
        position = skip_space(text, arguments[1])
        if not text.startswith(",", position):
            break
        position += 1
    end = after(text, position, "]")
    return Calls(calls, end) if calls and end is not None else None


def _marked(text: str, begin: re.Match[str], tools: Tools) -> Calls | None:
    section = _expressions(text, begin.end(), tools)
    end = after(text, section.end, begin.group().replace("start", "end")) if section else None
    return Calls(section.calls, end) if section and end is not None else None


def _bare(text: str, begin: re.Match[str], tools: Tools) -> Calls | None:
    """Expressions without marks; a list of something else, or of unknown names that cannot be read, is text."""
    if not begin["bare"]:
        return _marked(text, begin, tools)
    section = _expressions(text, begin.start(), tools)
    if section is None and begin["name"] not in tool_names(tools):
        return NONE
    return section


@dataclass(frozen=True)
class _Gemma:
    """One of Gemma's notations: the mark around strings, and the mark after a call."""

    quote: str
    closes: str

    def read(self, text: str, begin: re.Match[str], tools: Tools) -> Calls | None:
        head = _GEMMA_NAME.match(text, begin.end())
        notation = Notation(delimited(self.quote), bare_keys=True)
        arguments = pairs_at(text, head.end(), "}", ":", notation) if head else None
        if head is None or arguments is None:
            return None
        call = call_of(head["name"], _typed(head["name"], arguments[0], tools))
        end = after(text, arguments[1], self.closes)
        return Calls([call], end) if call and end is not None else None


FORMATS = (
    CallFormat("lfm2", r"<\|tool_call_start\|>", _marked, "LFM 2"),
    CallFormat(
        "pythonic",
        r"<\|python_start\|>|(?P<bare>\[\s{0,9}(?P<name>[A-Za-z_][\w.]{0,199})\()",
        _bare,
        "Llama 3.2 and 4, Gemma 3, ToolACE",
    ),
    CallFormat(
        "gemma4", r"<\|tool_call>", _Gemma('<|"|>', "<tool_call|>").read, "Gemma 4", stops=("<tool_call|>",)
    ),
    CallFormat(
        "functiongemma",
        "<start_function_call>",
        _Gemma("<escape>", "<end_function_call>").read,
        "FunctionGemma",
    ),
)
