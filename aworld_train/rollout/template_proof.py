"""Whether a chat template lets an episode stay one training row, proved with a short conversation before a run.

The conversation is put together turn by turn, and each added part is compared with the end of the whole conversation as
the template renders it. Where they differ, turns of that kind begin a new row with the whole history.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from aworld_train.episode.message import Message
from aworld_train.episode.tool_calls import ToolCall
from aworld_train.rollout.formats.choose import TOOL
from aworld_train.rollout.template import CannotContinue, ChatTemplate, TemplateFailure

_CALL = ToolCall("lookup", '{"word": "tea"}', "a1b2c3d4e")
_BEGIN = (Message("system", "Be brief."), Message("user", "What is tea?"))
_CALLED = Message("assistant", "", (_CALL,))
_RESULT = Message("tool", "a drink", call_id=_CALL.call_id, name=_CALL.name)
_ANSWERED = Message("assistant", "It is a drink.")
_QUESTION = Message("user", "And coffee?")
_KINDS = {"tool": "a tool's result", "user": "a user's message"}


@dataclass(frozen=True)
class Proof:
    """After which kinds of messages the whole history is rendered anew, and which are refused, with the reasons."""

    anew: dict[str, str]
    refused: dict[str, str]

    @property
    def line(self) -> str:
        parts = [
            f"The chat template {verb} {' and '.join(kinds)}{effect}: {'; '.join(dict.fromkeys(kinds.values()))}."
            for verb, kinds, effect in (
                ("renders the whole history anew after", self.anew, " (a row per turn)"),
                ("refuses", self.refused, ""),
            )
            if kinds
        ]
        return " ".join(parts) or "The chat template continues each turn: an episode is one training row."


def prove(template: ChatTemplate) -> Proof:
    """Try a template; what it would continue differently from its own format is forbidden to it from then on."""
    proof = Proof({}, {})
    begin = list(_BEGIN) if _accepted(template, _BEGIN, []) else list(_BEGIN[1:])
    _try(template, proof, [*begin, _CALLED], _RESULT, [TOOL])
    if "a tool's result" in proof.refused:
        _try(template, proof, [*begin, _ANSWERED], _QUESTION, [])
    else:
        _try(template, proof, [*begin, _CALLED, _RESULT, _ANSWERED], _QUESTION, [TOOL])
    return proof


def _accepted(template: ChatTemplate, messages: Sequence[Message], tools: Sequence[Any]) -> bool:
    try:
        template.initial(messages, tools)
    except TemplateFailure:
        return False
    return True


def _try(
    template: ChatTemplate, proof: Proof, history: Sequence[Message], new: Message, tools: Sequence[Any]
) -> None:
    kind = _KINDS[new.role]
    try:
        whole = template.initial([*history, new], tools)
    except TemplateFailure as failure:
        proof.refused[kind] = failure.reason.rstrip(".")
        return
    try:
        equal = _is_end_of(template, whole, history, new, tools)
    except CannotContinue as error:
        proof.anew[kind] = str(error).rstrip(".")
        return
    if not equal:
        reason = "it writes these messages differently into a whole history"
        proof.anew[kind] = template.anew[new.role] = reason


def _is_end_of(
    template: ChatTemplate,
    whole: Sequence[int],
    history: Sequence[Message],
    new: Message,
    tools: Sequence[Any],
) -> bool:
    whole_text = template.text(whole)
    added = [
        template.continuation(history, [new], tools, [end], ended=True, tools_key="proof")
        for end in sorted(template.ends)
    ]
    return any(tokens and whole_text.endswith(template.text(tokens)) for tokens in added)
