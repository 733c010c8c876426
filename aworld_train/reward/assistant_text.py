"""What the assistant itself said, and what of it was said aloud: nothing a tool, a person or a prompt wrote can win.

Of messages only those of the role ``assistant`` count. Where an agent loop hands over nothing but a decoded response,
the results of tools are cut out of it generously: inside a tool's result no tag proves anything, the tool may have
printed it.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from aworld_train.errors import RewardError

# What opens a tool's text in a decoded response, and what comes last before the assistant speaks again:
# ChatML turns, and the tags that Qwen's templates put inside them and that outlive special tokens.
_TOOL_TEXT = (("<|im_start|>", "<|im_start|>assistant"), ("<tool_response>", "</tool_response>"))

_THINKING = re.compile(r"</?think>")
# Types of a message's parts that are words of the assistant, as Chat Completions and Responses call them.
_WORDS = ("text", "output_text")


def assistant_text(prediction: str | Sequence[Mapping[str, Any]]) -> str:
    """All that the assistant said, its messages joined by newlines.

    Args:
        prediction: The final assistant text, which is returned as it is, or the messages of an episode. The content
            of a message is a text, a list of parts (those of the type ``text`` count), or None beside tool calls.

    Raises:
        RewardError: it is neither, or the content of an assistant's message is none of these.
    """
    if isinstance(prediction, str):
        return prediction
    if not isinstance(prediction, Sequence) or not all(isinstance(item, Mapping) for item in prediction):
        raise RewardError(
            f"A prediction is the assistant's text or a list of messages with role and content, "
            f"not {_brief(prediction)}."
        )
    messages: Sequence[Any] = prediction
    said = [_words(message.get("content")) for message in messages if message.get("role") == "assistant"]
    return "\n".join(text for text in said if text)


def _words(content: Any) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, Sequence):
        raise RewardError(f"A message's content is a text or a list of parts, not {_brief(content)}.")
    return "\n".join(text for text in map(_words_of_part, content) if text)


def _words_of_part(part: Any) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, Mapping) and part.get("type", "text") in _WORDS and isinstance(part.get("text"), str):
        return str(part["text"])
    return ""


def outside_thinking(text: str) -> list[str]:
    """The pieces of a text that stand outside ``<think>...</think>``, in order.

    Thinking that is never closed runs to the end; a ``</think>`` that nothing opened closes thinking that the prompt
    had begun, so that nothing before it counts.
    """
    pieces: list[str] = []
    start: int | None = 0
    for tag in _THINKING.finditer(text):
        if tag.group() == "</think>":
            if start is not None:
                pieces.clear()
            start = tag.end()
        elif start is not None:
            pieces.append(text[start : tag.start()])
            start = None
    if start is not None:
        pieces.append(text[start:])
    return pieces


def without_tool_text(response: str) -> str:
    """A decoded response without what tools returned in it.

    Everything from the first tool result to the last is cut, the assistant's words between them too: inside a
    tool result tags prove nothing, since the tool may have printed them.
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
