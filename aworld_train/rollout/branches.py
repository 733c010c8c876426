"""Where a request left the newest conversation: the message, and the characters that differ.

Each branch costs a training row; the place shows why an agent makes them.
"""

from collections.abc import Sequence
from os.path import commonprefix
from typing import Any

from aworld_train.episode.branch_point import BranchPoint, Cause
from aworld_train.episode.message import Message, canonical_arguments

_CHARS_BEFORE = 30
_CHARS_AFTER = 90


def branch_point(
    recorded: Sequence[Message], sent: Sequence[Message], tools: tuple[Any, Any] | None
) -> BranchPoint:
    """Where a request leaves a conversation; ``tools`` are those of both as text, if they differ."""
    if tools is not None:
        return BranchPoint("tools", 0, "", *_first_difference(*map(str, tools)))
    for index, (own, other) in enumerate(zip(recorded, sent, strict=False)):
        if own.key != other.key or not other.same_reasoning(own):
            cause: Cause = "new" if index == 0 else "rewritten" if own.role == "assistant" else "edited"
            with_reasoning = bool(other.reasoning)
            texts = [_text(each, with_reasoning) for each in (own, other)]
            if own.role != other.role:
                texts = [f"{each.role}: {text}" for each, text in zip((own, other), texts, strict=True)]
            return BranchPoint(cause, index, other.role, *_first_difference(*texts))
    index = len(sent)
    if index >= len(recorded):
        return BranchPoint("resampled", index, "", 0, "", "")
    return BranchPoint(
        "resampled", index, recorded[index].role, *_first_difference(_text(recorded[index]), "")
    )


def _text(message: Message, with_reasoning: bool = False) -> str:
    if message.role != "assistant":
        return message.content
    calls = [f"{call.name}({canonical_arguments(call.arguments)})" for call in message.tool_calls]
    reasoning = [message.reasoning.strip()] if with_reasoning else []
    return "\n".join([*reasoning, message.content.strip(), *calls])


def _first_difference(recorded: str, sent: str) -> tuple[int, str, str]:
    position = len(commonprefix([recorded, sent]))  # noqa: RUF071  of characters
    begin = max(0, position - _CHARS_BEFORE)
    end = position + _CHARS_AFTER
    return position, recorded[begin:end], sent[begin:end]
