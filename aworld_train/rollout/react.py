"""A ReAct episode: the model answers or calls tools, tools answer, until an answer comes or a limit is reached.

The episode sees the model as three functions (generate, parse, render), so it is the same under any training
framework. It never writes an assistant turn itself: what it cannot go on with ends it, with a typed outcome.
"""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from aworld_train.rollout.outcome import Outcome
from aworld_train.rollout.path import TokenPath
from aworld_train.rollout.tools import ToolResult

Message = dict[str, Any]


@dataclass(frozen=True)
class Sampled:
    """One model call: token ids, the log-probability of each, and whether the model ended its turn itself."""

    tokens: list[int]
    logprobs: list[float]
    ended: bool


@dataclass(frozen=True)
class ToolCall:
    """A tool call as the model wrote it; ``arguments`` is JSON text that may be anything."""

    name: str
    arguments: str


@dataclass(frozen=True)
class ParsedTurn:
    """An assistant turn taken apart: text, tool calls, and whether a call was begun that could not be read."""

    content: str
    calls: Sequence[ToolCall]
    malformed: bool


class Model(Protocol):
    """What an episode needs of the model under training."""

    async def generate(self, tokens: list[int], max_tokens: int) -> Sampled:
        """Sample up to ``max_tokens`` after ``tokens``."""

    async def parse(self, tokens: list[int]) -> ParsedTurn:
        """Read the tool calls in an assistant turn."""

    async def render(self, messages: list[Message], tools: list[dict[str, Any]]) -> list[int]:
        """Token ids of the first prompt, up to where the assistant begins."""

    async def render_results(
        self, before: list[Message], results: list[Message], tokens: list[int], tools: list[dict[str, Any]]
    ) -> list[int]:
        """Token ids that follow ``tokens`` to give tool results and let the assistant begin again."""

    def text(self, tokens: list[int]) -> str:
        """Decode sampled tokens."""


class Tools(Protocol):
    """What an episode needs of its tools."""

    async def call(self, name: str, arguments: dict[str, Any]) -> ToolResult:
        """Call one; an error of the tool is a result, a lost environment an exception."""


@dataclass(frozen=True)
class Limits:
    """Turns, tokens and characters beyond which an episode ends or a tool result is cut."""

    max_turns: int
    max_prompt_tokens: int
    max_response_tokens: int
    max_tool_result_chars: int


@dataclass
class Episode:
    """What an episode came to so far; complete once ``outcome`` is set."""

    path: TokenPath
    outcome: Outcome | None = None
    turns: int = 0
    tool_calls: int = 0
    tool_errors: int = 0
    generate_seconds: float = 0.0
    tool_seconds: float = 0.0
    turn_texts: list[str] = field(default_factory=list)

    @property
    def assistant_text(self) -> str:
        """All that the assistant wrote, and nothing else."""
        return "\n".join(self.turn_texts)


async def play(
    model: Model,
    tools: Tools,
    schemas: list[dict[str, Any]],
    messages: list[Message],
    limits: Limits,
    episode: Episode,
) -> None:
    """Play an episode to its end.

    ``episode`` is true at every await, so that a caller who stops it knows how far it got.

    Raises:
        EpisodeFailure: the environment was lost, or the engine failed.
    """
    history = list(messages)
    path = episode.path
    path.prompt = await model.render(history, schemas)
    if len(path.prompt) > limits.max_prompt_tokens:
        episode.outcome = Outcome.overlong
        return
    while episode.outcome is None:
        began = time.monotonic()
        sampled = await model.generate(path.tokens, limits.max_response_tokens - len(path.response))
        episode.generate_seconds += time.monotonic() - began
        path.add_sampled(sampled.tokens, sampled.logprobs)
        episode.turns += 1
        episode.turn_texts.append(model.text(sampled.tokens))
        if not sampled.ended:
            episode.outcome = Outcome.overlong
            return
        turn = await model.parse(sampled.tokens)
        if turn.malformed:
            episode.outcome = Outcome.malformed_call
        elif not turn.calls:
            episode.outcome = Outcome.answered
        elif episode.turns >= limits.max_turns:
            episode.outcome = Outcome.max_turns
        else:
            began = time.monotonic()
            results = [await _call(tools, call, limits, episode) for call in turn.calls]
            episode.tool_seconds += time.monotonic() - began
            history.append({"role": "assistant", "content": turn.content})
            added = await model.render_results(history, results, path.tokens, schemas)
            if len(path.response) + len(added) >= limits.max_response_tokens:
                episode.outcome = Outcome.overlong
            else:
                path.add_context(added)
                history += results


async def _call(tools: Tools, call: ToolCall, limits: Limits, episode: Episode) -> Message:
    """Make one call and return its result as a tool message, within the length the recipe allows."""
    episode.tool_calls += 1
    try:
        arguments = json.loads(call.arguments)
    except (ValueError, RecursionError):  # no JSON; a number with thousands of digits; thousands of brackets
        arguments = None
    if isinstance(arguments, dict):
        result = await tools.call(call.name, arguments)
    else:
        result = ToolResult(f"Error: the arguments of {call.name} must be a JSON object", True)
    if result.is_error:
        episode.tool_errors += 1
    return {"role": "tool", "name": call.name, "content": shorten(result.text, limits.max_tool_result_chars)}


def shorten(text: str, limit: int) -> str:
    """``text``, or about ``limit`` characters of its beginning and end, with a note of what was left out between."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters left out ...]\n{text[len(text) - half :]}"
