"""The assistant's own text, with and without its thinking: text of tools or prompts cannot earn a reward."""

from collections.abc import Mapping, Sequence
from typing import Any

from aworld_train.errors import RewardError
from aworld_train.thinking import closed, divide, part_text

# The opening of a tool's text in a decoded response, and the last marker before the assistant's next text:
# ChatML turns, and the tags that Qwen's templates put inside them, which remain when special tokens are removed.
_TOOL_TEXT = (("<|im_start|>", "<|im_start|>assistant"), ("<tool_response>", "</tool_response>"))

_THOUGHTS = ("analysis", "reasoning", "thinking")
"""Channels and types of whole messages that are thoughts, in gpt-oss's format and in Responses."""


def assistant_text(prediction: str | Sequence[Mapping[str, Any]]) -> str:
    """All text of the assistant, its messages joined by newlines; no message's thought runs into another message.

    ``prediction`` is its final text, which is returned as it is, or the messages of an episode, whose content is a
    text, a list of parts, or None beside tool calls.
    """
    if isinstance(prediction, str):
        return prediction
    if not isinstance(prediction, Sequence) or not all(isinstance(item, Mapping) for item in prediction):
        raise RewardError(
            f"A prediction is the assistant's text or a list of messages with role and content, "
            f"not {_brief(prediction)}."
        )
    messages: Sequence[Any] = prediction
    texts = [
        _content_text(message.get("content"))
        for message in messages
        if message.get("role") == "assistant"
        and message.get("channel") not in _THOUGHTS
        and message.get("type") not in _THOUGHTS
    ]
    return "\n".join(closed(text) for text in texts if text)


def _content_text(content: Any) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, Sequence):
        raise RewardError(f"A message's content is a text or a list of parts, not {_brief(content)}.")
    return "\n".join(text for text in map(part_text, content) if text)


def outside_thinking(text: str) -> list[str]:
    """The pieces of a text outside thoughts, in order, by the marks of all families of models.

    An unclosed thought runs to the end; a closing mark alone closes a thought that the prompt opened.
    """
    return divide(text).outside


def without_tool_text(response: str) -> str:
    """A decoded response without everything from the first tool result to the last.

    A tool may have printed tags, so what is between them proves nothing.
    """
    for opening, closing in _TOOL_TEXT:
        start = response.find(opening)
        if start < 0:
            continue
        end = response.rfind(closing, start)
        rest = response[end + len(closing) :] if end >= 0 else ""
        response = response[:start] + "\n" + rest
    return response


def _brief(value: Any) -> str:
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 60 else text[:57] + '...'}"
