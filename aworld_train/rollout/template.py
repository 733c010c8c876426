"""From messages to token ids through a model's chat template, each message once.

A conversation that continues is never rendered again: only new messages become tokens. The text that a template writes
between the model's last token and its next turn is found by rendering a short stand-in conversation, whose assistant
turn holds a marker, with the new messages after it, and taking the text after the marker. The template only has to
write turns one after the other; its treatment of earlier thinking, the tool list or the system message does not matter,
because these come before the marker. If a template does not allow this, ``CannotContinue`` is raised and the caller
renders the whole conversation as a new one.
"""

import json
from collections.abc import Hashable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from aworld_train.rollout import frames
from aworld_train.rollout.messages import Message, ToolCall
from aworld_train.rollout.tokens import encoder

_MARKER = "a1w2o3r4l5d6"
_STAND_IN = "hello"
_STAND_IN_TOOL: Mapping[str, Any] = {
    "type": "function",
    "function": {"name": "tool", "description": "", "parameters": {"type": "object", "properties": {}}},
}
_FEW_TOOLS: Sequence[Sequence[Mapping[str, Any]]] = ((), (_STAND_IN_TOOL,))
_MAX_FRAMES = 256
_CALL_ID = "a1b2c3d4e"  # nine letters and digits: one family of templates accepts no others


class CannotContinue(Exception):
    """This template cannot put these messages after a finished turn."""


class TemplateFailure(Exception):
    """The chat template refuses these messages; the text has its error."""


class ChatTemplate:
    """A tokenizer's chat template.

    Args:
        tokenizer: A Hugging Face tokenizer with a chat template.
        ends: Tokens that end a turn, ``eos_token_id`` among them.
        options: Further arguments of the template, such as ``enable_thinking``.
    """

    def __init__(self, tokenizer: Any, ends: Sequence[int], options: Mapping[str, Any] | None = None):
        self._tokenizer = tokenizer
        self._tokens_of = encoder(tokenizer)
        self.options = dict(options or {})
        self._end_texts = [tokenizer.decode([token]) for token in ends]
        self.ends = frozenset(ends)
        self.rendered_tokens = 0  # the tokens of all calls together
        self._after_finished_turn = lru_cache(maxsize=256)(self._find_after_finished_turn)
        self._frames: dict[Hashable, frames.Frame | None] = {}
        self._enough_tools: dict[tuple[str, ...], Sequence[Mapping[str, Any]] | None] = {}

    def initial(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> list[int]:
        """Token ids of a conversation, up to the beginning of the assistant's turn.

        Raises:
            TemplateFailure: the template refuses it.
        """
        data = [message.for_template() for message in messages]
        return self._encode(self._render(data, tools, begin_turn=True))

    def plain(self, text: str) -> list[int]:
        """Token ids of a text without a template, as the tokenizer begins texts."""
        return list(self._tokenizer.encode(text))

    def continuation(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]],
        last_token: int,
        ended: bool,
    ) -> list[int]:
        """Token ids that put ``messages`` after a sampled turn and let the assistant begin again.

        Args:
            messages: The new messages; at least one.
            tools: The tools of the conversation.
            last_token: The last token that was sampled.
            ended: Whether the model ended its turn with it, rather than being cut off.

        Raises:
            CannotContinue: the whole conversation has to be rendered instead.
        """
        text = self._new_text(messages, tools)
        tokens = self._encode(text)
        if not tokens:
            raise CannotContinue("the template adds nothing")
        # The model may have sampled the template's first token itself: the end of its turn or, in some families, the
        # beginning of the next.
        closes = any(text.startswith(end) for end in self._end_texts)
        if tokens[0] == last_token or (ended and closes):
            tokens = tokens[1:]
        return tokens

    def _new_text(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> str:
        """The text of ``messages``.

        Few templates show the tool list again after a turn. With many tools, rendering the list costs more than all
        else, so a test once per sequence of roles shows whether the text depends on all tools, any tool, or none.
        """
        if not tools:
            return self._framed(messages, ())
        roles = tuple([message.role for message in messages])
        if roles in self._enough_tools:
            enough = self._enough_tools[roles]
            return self._after_turn(messages, tools) if enough is None else self._framed(messages, enough)
        text = self._after_turn(messages, tools)
        self._enough_tools[roles] = next(
            (few for few in _FEW_TOOLS if self._text_or_none(few, messages) == text), None
        )
        return text

    def _framed(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> str:
        """As ``_after_turn``, for a fixed tool list, with a frame where there is one."""
        shape = frames.shape(messages)
        source = getattr(self._tokenizer, "chat_template", None)
        if shape is None or not source:
            return self._after_turn(messages, tools)
        key = (shape, bool(tools))
        if key not in self._frames and len(self._frames) < _MAX_FRAMES:
            self._frames[key] = frames.find(lambda other: self._text_or_none(tools, other), messages, source)
        frame = self._frames.get(key)
        return frame.render(messages) if frame is not None else self._after_turn(messages, tools)

    def _text_or_none(self, tools: Sequence[Mapping[str, Any]], messages: Sequence[Message]) -> str | None:
        try:
            return self._after_turn(messages, tools)
        except CannotContinue:
            return None

    def _after_turn(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> str:
        """The text between the content of an assistant's turn and its next one, with ``messages`` in between."""
        first = messages[0]
        stand_in = _stand_in(first.role == "tool", first.name)
        try:
            whole = self._render(
                [*stand_in, *(message.for_template() for message in messages)], tools, begin_turn=True
            )
        except TemplateFailure as error:
            raise CannotContinue(str(error)) from error
        after = _after_marker(whole)
        if first.role != "tool":
            return after
        # The marker is inside a call's arguments; the end of the call was sampled with it.
        finished = self._after_finished_turn(first.name)
        if not after.startswith(finished):
            raise CannotContinue("the template writes a tool call differently once its result is there")
        return self._closing(finished) + after[len(finished) :]

    def _find_after_finished_turn(self, name: str) -> str:
        """The text after the marker in a call of that tool without a result."""
        try:
            return _after_marker(self._render(_stand_in(True, name), [_STAND_IN_TOOL], begin_turn=False))
        except TemplateFailure as error:
            raise CannotContinue(str(error)) from error

    def _closing(self, finished: str) -> str:
        """The end of a turn: ``finished`` from its last end token on; some templates have none."""
        found = max((finished.rfind(end) for end in self._end_texts), default=-1)
        return finished[found:] if found >= 0 else ""

    def _render(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]], begin_turn: bool
    ) -> str:
        try:
            return str(
                self._tokenizer.apply_chat_template(
                    list(messages),
                    tools=list(tools) or None,
                    add_generation_prompt=begin_turn,
                    tokenize=False,
                    **self.options,
                )
            )
        except Exception as error:
            # Templates are programs that come with models, and may raise anything.
            raise TemplateFailure(
                f"the model's chat template refuses the messages: {type(error).__name__}: {error}"
            ) from error

    def _encode(self, text: str) -> list[int]:
        tokens = self._tokens_of(text)
        self.rendered_tokens += len(tokens)
        return tokens


@lru_cache(maxsize=256)
def _stand_in(calls: bool, name: str) -> tuple[Mapping[str, Any], ...]:
    """A short conversation that ends with an assistant's turn: a call of the tool ``name``, or text."""
    turn = Message("assistant", _MARKER)
    if calls:
        call = ToolCall(name or "tool", json.dumps({"value": _MARKER}), _CALL_ID)
        turn = Message("assistant", "", (call,))
    return Message("user", _STAND_IN).for_template(), turn.for_template()


def _after_marker(text: str) -> str:
    _before, marker, after = text.partition(_MARKER)
    if not marker or _MARKER in after:
        raise CannotContinue("the template does not show an assistant's turn once, as it is")
    return after
