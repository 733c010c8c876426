"""OpenAI's harmony, the format of gpt-oss: a turn is a row of messages, each with a channel and perhaps a recipient."""

import re
from typing import Any

from aworld_train.episode.tool_calls import ToolCall
from aworld_train.rollout.formats.call_format import CallFormat, after, call_of, joined, json_at
from aworld_train.rollout.formats.schemas import Tools
from aworld_train.rollout.model import ParsedTurn

_BODY = "<|message|>"
_ENDS = ("<|end|>", "<|call|>", "<|return|>", "<|start|>")
_END = re.compile("|".join(re.escape(end) for end in _ENDS))
_CHANNEL = re.compile(r"<\|channel\|>\s*(\w+)")
_RECIPIENT = re.compile(r"\bto=([^\s<]+)")


def _read_turn(text: str, tools: Tools) -> ParsedTurn:
    content: list[str] = []
    thoughts: list[str] = []
    calls: list[ToolCall] = []
    position = 0
    while True:
        body = text.find(_BODY, position)
        if body < 0:
            if "<|channel|>" not in text[position:]:
                content.append(text[position:])
            return ParsedTurn(joined(content), joined(thoughts), calls)
        header = text[position:body]
        start = body + len(_BODY)
        recipient, channel = _RECIPIENT.search(header), _CHANNEL.search(header)
        if recipient is not None and (channel is None or channel[1] != "analysis"):
            call = _call(recipient[1], text, start)
            if call is None:
                return ParsedTurn(joined(content), joined(thoughts), calls, malformed=True)
            calls.append(call[0])
            position = call[1]
            continue
        end = _END.search(text, start)
        piece = text[start : end.start() if end else len(text)]
        if channel is not None and channel[1] == "analysis":
            thoughts.append(piece)
            if end is None:
                return ParsedTurn(joined(content), joined(thoughts), calls, unfinished=True)
        else:
            content.append(piece)
        position = end.end() if end else len(text)


def _call(recipient: str, text: str, start: int) -> tuple[ToolCall, int] | None:
    arguments: tuple[Any, int] | None = json_at(text, start)
    call = call_of(recipient.removeprefix("functions."), arguments[0]) if arguments else None
    end = after(text, arguments[1], *_ENDS, "") if arguments else None
    return (call, end) if call is not None and end is not None else None


FORMATS = (CallFormat("gpt-oss", r"\bto=functions\.", lambda *_: None, "gpt-oss", read_whole=_read_turn),)
