"""Chooses the notation that reads a call out of a turn that the chat template renders, and refuses one that does not
fit."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from os.path import commonprefix
from typing import Any

from aworld_train.episode.message import Message
from aworld_train.episode.tool_calls import ToolCall
from aworld_train.errors import ModelError
from aworld_train.rollout.formats import AUTO, FORMATS, CallFormat, read_turn, unknown_name

_DEFAULT = "hermes"
_QUESTION = "a1w2o3r4l5d6"
_WORD = "b7c8d9"
TOOL: Mapping[str, Any] = {
    "type": "function",
    "function": {
        "name": "lookup",
        "description": "Look a word up.",
        "parameters": {
            "type": "object",
            "properties": {
                "word": {"type": "string", "description": "The word."},
                "count": {"type": "integer", "description": "How many."},
                "deep": {"type": "boolean", "description": "Whether to look deep."},
            },
            "required": ["word"],
        },
    },
}
_ARGUMENTS = {"word": _WORD, "count": 3, "deep": True}
_CALL = ToolCall("lookup", json.dumps(_ARGUMENTS), "a1b2c3d4e")
_MAX_SHOWN = 120  # characters of a rendered call in a message

_Dicts = Sequence[Mapping[str, Any]]
Render = Callable[[_Dicts, _Dicts, bool], str]
"""Renders messages with tools; the last argument is whether the assistant's turn begins."""


@dataclass(frozen=True)
class Choice:
    call_format: CallFormat
    reason: str


def choose_for(name: str, tokenizer: Any, options: Mapping[str, Any] | None = None) -> Choice:
    """As ``choose``, for a Hugging Face tokenizer and further arguments of its chat template."""

    def render(messages: _Dicts, tools: _Dicts, begin_turn: bool) -> str:
        return str(
            tokenizer.apply_chat_template(
                list(messages),
                tools=list(tools),
                add_generation_prompt=begin_turn,
                tokenize=False,
                **(options or {}),
            )
        )

    def marks() -> str:
        return "\n".join([str(tokenizer.chat_template), *map(str, tokenizer.added_tokens_decoder.values())])

    return choose(name, render, marks)


def choose(name: str, render: Render, marks: Callable[[], str]) -> Choice:
    """The notation that ``agent.tool_parser`` names, or the one that fits the chat template.

    ``marks`` gives the texts in which a notation's marks may be: the template's source and the tokenizer's tokens.
    """
    problem = unknown_name(name)
    if problem is not None:
        raise ModelError(f"agent.tool_parser: {problem}")
    turns = _turns_with_call(render)
    if not turns:
        return _unseen(name, marks())
    fitting = _reading(turns)
    # A template may print bare calls in a way that no model writes, such as texts without quotes.
    fitting = fitting or [
        entry for entry in FORMATS.values() if any(_begins_bare(entry, turn) for turn in turns)
    ]
    written = turns[0] if len(turns[0]) <= _MAX_SHOWN else turns[0][:_MAX_SHOWN] + "..."
    if name == AUTO:
        if not fitting:
            raise ModelError(
                f"agent.tool_parser: none of the known formats reads the calls of this model's chat template, which "
                f"writes {written!r}. Known are {', '.join(sorted(FORMATS))}; name one if the model writes it."
            )
        return Choice(fitting[0], "by the chat template")
    if fitting and FORMATS[name] not in fitting:
        raise ModelError(
            f"agent.tool_parser: {name} does not fit the model. Its chat template writes a call as {written!r}, which "
            f"{fitting[0].name} reads. Set agent.tool_parser to that, or to {AUTO}."
        )
    return Choice(FORMATS[name], "by agent.tool_parser")


def _unseen(name: str, marks: str) -> Choice:
    if name != AUTO:
        return Choice(FORMATS[name], "by agent.tool_parser")
    for entry in FORMATS.values():
        if (mark := entry.call.search(marks)) and not mark.groupdict().get("bare"):
            return Choice(entry, f"by the mark {mark.group()!r} of the chat template or the tokenizer")
    return Choice(FORMATS[_DEFAULT], "for want of marks: the chat template shows no calls")


def _reading(turns: Sequence[str]) -> list[CallFormat]:
    """The formats that read the call out of a turn and leave the least of the turn as text."""
    lengths: dict[str, int] = {}
    for entry in FORMATS.values():
        read = [read_turn(turn, entry, [TOOL]) for turn in turns]
        rest = [len(turn.content) for turn in read if _is_the_call(turn.calls)]
        lengths |= {entry.name: min(rest)} if rest else {}
    least = min(lengths.values(), default=0)
    return [FORMATS[name] for name, length in lengths.items() if length == least]


def _is_the_call(calls: Sequence[ToolCall]) -> bool:
    return [(call.name, json.loads(call.arguments)) for call in calls] == [(_CALL.name, _ARGUMENTS)]


def _begins_bare(entry: CallFormat, turn: str) -> bool:
    mark = entry.call.search(turn)
    return bool(mark and mark.groupdict().get("bare"))


def _turns_with_call(render: Render) -> list[str]:
    """The text of a turn with a call, in several cuts; none if the template does not show it.

    A template may show only a text as the arguments, and refuse a mapping.
    """
    question = Message("user", _QUESTION).for_template()
    answer = Message("assistant", "", (_CALL,)).for_template()
    (call,) = answer["tool_calls"]
    in_text = {**call, "function": {"name": _CALL.name, "arguments": _CALL.arguments}}
    for calls in ([call], [in_text]):
        try:
            prompt = render([question], [TOOL], True)
            whole = render([question, {**answer, "tool_calls": calls}], [TOOL], False)
        except Exception:  # templates are programs, and may raise anything
            continue
        after_question = whole.rpartition(_QUESTION)[2]
        if _WORD in after_question:
            return [whole[_shared(prompt, whole) :], after_question]
    return []


def _shared(prompt: str, whole: str) -> int:
    """The length of the prompt in the whole; a template may begin the turn otherwise once it is over."""
    if whole.startswith(prompt):
        return len(prompt)
    length = len(commonprefix([prompt, whole]))  # noqa: RUF071  of characters
    return max(whole.rfind(end, 0, length) for end in "\n>]") + 1
