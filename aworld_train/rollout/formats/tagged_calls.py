"""Formats that write each argument between tags, as plain text: the tools' schemas give the values their types.

A value may contain the tag that ends it. It ends at the first such tag after which the next argument or the end of the
call follows.
"""

import re
from dataclasses import dataclass
from typing import Any

from aworld_train.episode.tool_calls import ToolCall
from aworld_train.rollout.formats.call_format import CallFormat, Calls, after, call_of
from aworld_train.rollout.formats.schemas import Tools, converted, parameter_schemas


@dataclass(frozen=True)
class _Tagged:
    """``function`` has the group ``name``, and ``parameter`` the group ``key``, and ``string`` where the model says
    whether the value is one. ``lines``: a value is on lines of its own; ``quotes`` may be around a value with odd
    characters.
    """

    function: re.Pattern[str]
    parameter: re.Pattern[str]
    parameter_end: str
    function_end: str
    section_end: str = ""
    lines: bool = False
    quotes: tuple[str, str] = ("", "")

    def read(self, text: str, begin: re.Match[str], tools: Tools) -> Calls | None:
        calls: list[ToolCall] = []
        position = begin.end()
        while function := self.function.match(text, position):
            name = function["name"].strip()
            arguments = self._arguments(text, function.end(), parameter_schemas(tools, name))
            call = call_of(name, arguments[0]) if arguments else None
            if arguments is None or call is None:
                return None
            calls.append(call)
            position = arguments[1]
            if not self.section_end:
                break
        end = after(text, position, self.section_end)
        return Calls(calls, end) if calls and end is not None else None

    def _arguments(self, text: str, position: int, schemas: Any) -> tuple[dict[str, Any], int] | None:
        arguments: dict[str, Any] = {}
        while parameter := self.parameter.match(text, position):
            end = self._value_end(text, parameter.end())
            if end is None:
                return None
            value = text[parameter.end() : end]
            if self.lines:
                value = value.removeprefix("\n").removesuffix("\n")
            opening, closing = self.quotes
            if value.startswith(opening) and value.endswith(closing):
                value = value.removeprefix(opening).removesuffix(closing)
            key = parameter["key"].strip()
            # A value that is called a string is one, whatever the schema; one that is not is JSON.
            is_string = parameter.groupdict().get("string")
            schema = (
                schemas.get(key) if is_string is None else {"type": "string"} if is_string == "true" else None
            )
            arguments[key] = converted(value, schema)
            position = end + len(self.parameter_end)
        end = after(text, position, self.function_end)
        return None if end is None else (arguments, end)

    def _value_end(self, text: str, start: int) -> int | None:
        end = text.find(self.parameter_end, start)
        while end != -1:
            position = end + len(self.parameter_end)
            if self.parameter.match(text, position) or after(text, position, self.function_end) is not None:
                return end
            end = text.find(self.parameter_end, position)
        return None


_FUNCTION = r"\s*<function=(?P<name>[^>\n]{1,200})>"
_PARAMETER = r"\s*<parameter=(?P<key>[^>\n]{1,200})>"
_INVOKE = r'\s*<{0}invoke name="(?P<name>[^"\n]{{1,200}})">'
_NAMED = r'\s*<{0}parameter name="(?P<key>[^"\n]{{1,200}})"{1}>'

_QWEN3_CODER = _Tagged(
    re.compile(_FUNCTION), re.compile(_PARAMETER), "</parameter>", "</function>", "</tool_call>", lines=True
)
_SEED = _Tagged(
    re.compile(_FUNCTION), re.compile(_PARAMETER), "</parameter>", "</function>", "</seed:tool_call>"
)
_GLM = _Tagged(
    re.compile(r"\s*(?P<name>[\w.:/-]{1,200})"),
    re.compile(r"\s*<arg_key>(?P<key>[^<\n]{1,200})</arg_key>\s*<arg_value>"),
    "</arg_value>",
    "</tool_call>",
)
_MINICPM = _Tagged(
    re.compile(r'<function name="(?P<name>[^"\n]{1,200})">'),
    re.compile(r'\s*<param name="(?P<key>[^"\n]{1,200})">'),
    "</param>",
    "</function>",
    quotes=("<![CDATA[", "]]>"),
)


def _invoking(prefix: str, section_end: str, attribute: str = "") -> _Tagged:
    return _Tagged(
        re.compile(_INVOKE.format(prefix)),
        re.compile(_NAMED.format(prefix, attribute)),
        f"</{prefix}parameter>",
        f"</{prefix}invoke>",
        section_end,
    )


def _read_dsml(text: str, begin: re.Match[str], tools: Tools) -> Calls | None:
    marks = _invoking("｜DSML｜", f"</{begin.group()[1:]}", r' string="(?P<string>true|false)"')
    return marks.read(text, begin, tools)


FORMATS = (
    CallFormat(
        "qwen3_coder", "<tool_call>", _QWEN3_CODER.read, "Qwen3-Coder, Qwen 3.5 and later, Nemotron 3, Step"
    ),
    CallFormat("glm", "<tool_call>", _GLM.read, "GLM 4.5 and later, Ling 3, Laguna, Spark"),
    CallFormat("seed", "<seed:tool_call>", _SEED.read, "Seed-OSS"),
    CallFormat("minimax", "<minimax:tool_call>", _invoking("", "</minimax:tool_call>").read, "MiniMax M2"),
    CallFormat("deepseek_v4", "<｜DSML｜(?:tool_calls|function_calls)>", _read_dsml, "DeepSeek V3.2 and V4"),
    CallFormat("minicpm", r'(?=<function name=")', _MINICPM.read, "MiniCPM 5"),
)
