"""Formats that write a call as a header with the name, and its arguments as a JSON object."""

import re
from dataclasses import dataclass

from aworld_train.episode.tool_calls import ToolCall
from aworld_train.rollout.formats.call_format import CallFormat, Calls, after, call_of, json_at
from aworld_train.rollout.formats.schemas import Tools


@dataclass(frozen=True)
class _Headed:
    """The marks of such a format; ``header`` has the group ``name``, and ``id`` where the model writes one."""

    header: re.Pattern[str]
    call_end: str = ""
    section_end: str = ""

    def read(self, text: str, begin: re.Match[str], tools: Tools) -> Calls | None:
        calls: list[ToolCall] = []
        position = begin.end()
        while header := self.header.match(text, position):
            arguments = json_at(text, header.end())
            groups = header.groupdict()
            call = call_of(groups["name"], arguments[0], groups.get("id")) if arguments else None
            end = after(text, arguments[1], self.call_end) if arguments else None
            if call is None or end is None:
                return None
            calls.append(call)
            position = end
        section_end = after(text, position, self.section_end)
        return Calls(calls, section_end) if calls and section_end is not None else None


# The first of Mistral's notations is a list of objects with identifiers; the next ones head each call.
_MISTRAL = _Headed(
    re.compile(r"\s*(?:\[TOOL_CALLS\]\s*)?(?P<name>[\w.-]{1,200})(?:\[CALL_ID\](?P<id>\w{1,64}))?\[ARGS\]")
)
_DEEPSEEK_V3 = _Headed(
    re.compile(r"\s*<｜tool▁call▁begin｜>\w{0,20}<｜tool▁sep｜>(?P<name>[^\s<]{1,200})\s*```json"),
    "```<｜tool▁call▁end｜>",
    "<｜tool▁calls▁end｜>",
)
_DEEPSEEK_V31 = _Headed(
    re.compile(r"\s*<｜tool▁call▁begin｜>(?P<name>[^\s<]{1,200})<｜tool▁sep｜>"),
    "<｜tool▁call▁end｜>",
    "<｜tool▁calls▁end｜>",
)
_KIMI = _Headed(
    re.compile(
        r"\s*<\|tool_call_begin\|>\s*(?P<id>(?:functions\.)?(?P<name>[^\s<:]{1,200})(?::\d{1,9})?)\s*"
        r"<\|tool_call_argument_begin\|>"
    ),
    "<|tool_call_end|>",
    "<|tool_calls_section_end|>",
)
_SOLAR = _Headed(
    re.compile(
        r"\s*<\|tool_call:begin\|>(?P<id>[^<\s]{1,64})<\|tool_call:name\|>(?P<name>[^<\s]{1,200})<\|tool_call:args\|>"
    ),
    "<|tool_call:end|>",
    "<|calls|>",
)
_FUNCTIONARY = _Headed(re.compile(r"\s*<function=(?P<name>[^\s>]{1,200})>"), "</function>")


def _read_mistral(text: str, begin: re.Match[str], tools: Tools) -> Calls | None:
    listed = json_at(text, begin.end())
    if listed is None or not isinstance(listed[0], list):
        return _MISTRAL.read(text, begin, tools)
    values = [value if isinstance(value, dict) else {} for value in listed[0]]
    calls = [
        call_of(value.get("name"), value["arguments"], value.get("id")) if "arguments" in value else None
        for value in values
    ]
    read = [call for call in calls if call is not None]
    return Calls(read, listed[1]) if read and len(read) == len(calls) else None


FORMATS = (
    CallFormat("mistral", r"\[TOOL_CALLS\]", _read_mistral, "Mistral, Ministral, Magistral, Devstral"),
    CallFormat("deepseek_v3", "<｜tool▁calls▁begin｜>", _DEEPSEEK_V3.read, "DeepSeek V3 and R1"),
    CallFormat("deepseek_v31", "<｜tool▁calls▁begin｜>", _DEEPSEEK_V31.read, "DeepSeek V3.1"),
    CallFormat("kimi", r"<\|tool_calls_section_begin\|>", _KIMI.read, "Kimi K2"),
    CallFormat("solar", r"<\|tool_calls\|>", _SOLAR.read, "Solar Open"),
    CallFormat("functionary", "(?=<function=)", _FUNCTIONARY.read, "Functionary 3.1"),
)
