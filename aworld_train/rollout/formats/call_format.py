"""What a format of tool calls is, and how a turn is read with it: thoughts, text and calls in one pass.

A call that begins outside a thought is read to its end before anything else is looked for, so marks inside its
arguments are arguments. What cannot be read makes the turn malformed, and nothing after it is read: neither a broken
call nor what follows it is an answer. Every reader takes linear time and raises nothing.
"""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from aworld_train import thinking
from aworld_train.episode.tool_calls import ToolCall
from aworld_train.rollout.formats.schemas import Tools, tool_names
from aworld_train.rollout.model import ParsedTurn
from aworld_train.thinking import Marks

_DECODER = json.JSONDecoder()
_SPACE = re.compile(r"\s*")
_CALL_ID = re.compile(r"[\w.:-]{1,64}")
_MAX_BARE = 20  # places in a turn that are tried as calls without marks


@dataclass(frozen=True)
class Calls:
    """Calls that were read, and the position after them; without calls, the mark is text."""

    calls: list[ToolCall]
    end: int = 0


NONE = Calls([])  # what looked like the beginning of a call is text


Reader = Callable[[str, re.Match[str], Tools], Calls | None]
"""Reads the calls whose beginning was matched; None if they cannot be read."""


@dataclass(frozen=True)
class CallFormat:
    """One family's notation of calls.

    What the group ``bare`` of ``begins`` matches could be text as well, and begins a call only where the agent has
    tools; after other text, only one of a tool that it has. ``stops`` are tokens after which the turn is over, and
    ``read_whole`` is for a format that divides turns in its own way.
    """

    name: str
    begins: str
    read: Reader
    families: str
    stops: tuple[str, ...] = ()
    read_whole: Callable[[str, Tools], ParsedTurn] | None = None

    @cached_property
    def call(self) -> re.Pattern[str]:
        return re.compile(self.begins)

    @cached_property
    def mark(self) -> re.Pattern[str]:
        return re.compile(f"(?P<thought>{thinking.PATTERN})|(?:{self.begins})")


def read_turn(text: str, call_format: CallFormat, tools: Tools, opened: Marks | None = None) -> ParsedTurn:
    """Read a turn; ``opened`` are the marks of a thought that the prompt has opened."""
    if call_format.read_whole is not None:
        return call_format.read_whole(text, tools)
    outside: list[str] = []
    thoughts: list[str] = []
    calls: list[ToolCall] = []
    inside: Marks | None = opened
    # The next piece outside begins at ``begin``; the next mark is looked for at ``position``.
    begin = position = bare = 0
    while True:
        if inside is not None:
            end = inside.end.search(text, position)
            thoughts.append(inside.thought(text[position : end.start() if end else len(text)]))
            if end is None:
                return ParsedTurn(joined(outside), joined(thoughts), calls, unfinished=True)
            begin = position = end.end()
            inside = None
        mark = call_format.mark.search(text, position)
        if mark is None:
            return ParsedTurn(joined([*outside, text[begin:]]), joined(thoughts), calls)
        position = mark.end()
        is_bare = bool(mark.groupdict().get("bare"))
        bare += is_bare
        if is_bare and (bare > _MAX_BARE or not tools):
            continue
        before = text[begin : mark.start()]
        if mark["thought"] is not None:
            outside.append(before)
            begin = position
            inside = thinking.opened_at(mark["thought"])
            if inside is None:  # the prompt had opened a thought
                thoughts += outside
                outside, calls = [], []
            continue
        section = call_format.read(text, mark, tools)
        if is_bare and any(map(str.strip, [*outside, before])) and not _known(section, tools):
            continue
        if section is None:
            return ParsedTurn(joined([*outside, before]), joined(thoughts), calls, malformed=True)
        if section.calls:
            outside.append(before)
            calls += section.calls
            begin = position = section.end


def _known(section: Calls | None, tools: Tools) -> bool:
    names = tool_names(tools)
    return section is not None and all(call.name in names for call in section.calls)


def joined(pieces: Sequence[str]) -> str:
    return "\n".join(piece.strip() for piece in pieces if piece.strip())


def skip_space(text: str, position: int) -> int:
    space = _SPACE.match(text, position)
    return space.end() if space else position


def json_at(text: str, position: int) -> tuple[Any, int] | None:
    """The JSON value at a position, spaces skipped, and the position after it; None if there is none."""
    try:
        return _DECODER.raw_decode(text, skip_space(text, position))
    except (ValueError, RecursionError):
        return None


def after(text: str, position: int, *closings: str) -> int | None:
    """The position after the first of these closing marks at a position, spaces skipped; None if none does."""
    position = skip_space(text, position)
    return next((position + len(mark) for mark in closings if text.startswith(mark, position)), None)


def call_of(name: Any, arguments: Any, call_id: Any = None) -> ToolCall | None:
    """A call with its arguments as JSON text; None if the name is not a name.

    Arguments that are themselves JSON text of an object are that object.
    """
    if not isinstance(name, str) or not name.strip():
        return None
    if isinstance(arguments, str):
        read = json_at(arguments, 0)
        if read is not None and isinstance(read[0], dict) and not arguments[read[1] :].strip():
            arguments = read[0]
    try:
        written = json.dumps(arguments, ensure_ascii=False)
    except (ValueError, RecursionError):
        return None
    identifier = str(call_id) if isinstance(call_id, str | int) else ""
    return ToolCall(name.strip(), written, identifier if _CALL_ID.fullmatch(identifier) else "")
