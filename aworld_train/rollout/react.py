"""The ReAct agent: the model answers or calls tools, tools answer, until an answer comes or a limit is reached."""

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

from aworld_train.episode.images import Image
from aworld_train.episode.message import Message
from aworld_train.episode.tool_calls import ToolCall, ToolCallRecord
from aworld_train.rollout.cassette import RecordedTools
from aworld_train.rollout.messages import ChatRequest, Conversation
from aworld_train.rollout.tool_record import UNANSWERED, ToolCounts
from aworld_train.rollout.tools import ToolResult, text_and_images_of
from aworld_train.waits import waiting


async def play(
    conversation: Conversation,
    tools: RecordedTools,
    schemas: Sequence[Mapping[str, Any]],
    messages: Sequence[Message],
    counts: ToolCounts,
    *,
    max_turns: int,
    max_result_chars: int,
    with_images: bool = False,
) -> bool:
    """Play an episode to its end; whether its last turn called tools and no turn was left.

    ``counts`` is right whenever a caller cancels this; without ``with_images`` the model is shown notes in their place.
    """
    history = list(messages)
    for turn in range(1, max_turns + 1):
        completion = await conversation.complete(ChatRequest(history, schemas))
        # A turn that was cut off or is malformed gets no calls, even if some of them could be parsed.
        if completion.finish_reason != "tool_calls" or completion.malformed:
            return False
        if turn < max_turns:
            history.append(completion.message)
            began = time.monotonic()
            for call in completion.tool_calls:
                history.append(await _call(tools, call, counts, max_result_chars, with_images))
            counts.seconds += time.monotonic() - began
    return True


async def _call(
    tools: RecordedTools, call: ToolCall, counts: ToolCounts, max_chars: int, with_images: bool
) -> Message:
    counts.calls += 1
    began, clock = time.time(), time.monotonic()
    result = ToolResult(UNANSWERED, True)
    try:
        result = await _answer(tools, call)
    finally:
        counts.records.append(
            ToolCallRecord(
                call.name,
                call.arguments,
                result.text,
                result.is_error,
                began,
                time.monotonic() - clock,
                result.replayed,
                call.call_id,
            )
        )
    if result.is_error:
        counts.errors += 1
    text, images = result.text, tuple[Image, ...]()
    if with_images and isinstance(result.raw, dict) and "content" in result.raw:
        text, images = text_and_images_of(result.raw)
    message = Message("tool", text, call_id=call.call_id, name=call.name, images=images)
    return message if len(text) <= max_chars else message.with_text(shorten(text, max_chars))


async def _answer(tools: RecordedTools, call: ToolCall) -> ToolResult:
    try:
        arguments = json.loads(call.arguments)
    except (ValueError, RecursionError):  # no JSON; a number with thousands of digits; thousands of brackets
        arguments = None
    if not isinstance(arguments, dict):
        return ToolResult(f"Error: the arguments of {call.name} must be a JSON object", True)
    with waiting("tool", call.name):
        return await tools.call(call.name, arguments)


def shorten(text: str, limit: int) -> str:
    """``text``, or about ``limit`` characters of its beginning and end, with a note of how much was left out."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters left out ...]\n{text[len(text) - half :]}"
