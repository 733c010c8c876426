"""The ReAct agent: the model answers or calls tools, tools answer, until an answer comes or a limit is reached.

It asks the model through the same conversation that any other agent does, and never writes an assistant turn itself:
what it cannot go on with ends the episode, with the outcome that the episode then has.
"""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from aworld_train.rollout.messages import ChatRequest, Conversation, Message, ToolCall
from aworld_train.rollout.tools import ToolResult


class Tools(Protocol):
    """What the agent needs of its tools."""

    async def call(self, name: str, arguments: dict[str, Any]) -> ToolResult:
        """Call one; an error of the tool is a result, a lost environment an exception."""


@dataclass
class ToolCounts:
    """The tool calls of an episode, how many of them were errors, and how long all took."""

    calls: int = 0
    errors: int = 0
    seconds: float = field(default=0.0)


async def play(
    conversation: Conversation,
    tools: Tools,
    schemas: Sequence[Mapping[str, Any]],
    messages: Sequence[Message],
    counts: ToolCounts,
    *,
    max_turns: int,
    max_result_chars: int,
) -> bool:
    """Play an episode to its end.

    ``counts`` is true at every await, so that a caller who stops it knows how far it got.

    Returns:
        Whether it ended because the last turn asked for tools and no turn was left.

    Raises:
        Refused: the model has no more to say in this episode; the episode knows why.
        EpisodeFailure: the environment was lost.
    """
    history = list(messages)
    for turn in range(1, max_turns + 1):
        completion = await conversation.complete(ChatRequest(history, schemas))
        # A turn that was cut off or cannot be read is no basis for calls, even where some of it can be.
        if completion.finish_reason != "tool_calls" or completion.malformed:
            return False
        if turn < max_turns:
            history.append(completion.message)
            began = time.monotonic()
            for call in completion.tool_calls:
                history.append(await _call(tools, call, counts, max_result_chars))
            counts.seconds += time.monotonic() - began
    return True


async def _call(tools: Tools, call: ToolCall, counts: ToolCounts, max_chars: int) -> Message:
    """Make one call and return its result as a message, within the length the recipe allows."""
    counts.calls += 1
    try:
        arguments = json.loads(call.arguments)
    except (ValueError, RecursionError):  # no JSON; a number with thousands of digits; thousands of brackets
        arguments = None
    if isinstance(arguments, dict):
        result = await tools.call(call.name, arguments)
    else:
        result = ToolResult(f"Error: the arguments of {call.name} must be a JSON object", True)
    if result.is_error:
        counts.errors += 1
    return Message("tool", shorten(result.text, max_chars), call_id=call.call_id, name=call.name)


def shorten(text: str, limit: int) -> str:
    """``text``, or about ``limit`` characters of its beginning and end, with a note of what was left out between."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters left out ...]\n{text[len(text) - half :]}"
