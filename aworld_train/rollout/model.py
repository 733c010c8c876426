"""The interface of a language model: a chat template, tokens in and out, and the parsing of tool calls."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from aworld_train.rollout.messages import ToolCall
from aworld_train.rollout.template import ChatTemplate

THINKING_ENDS = "</think>"
_THINKING_BEGINS = "<think>"


@dataclass(frozen=True)
class SampledTokens:
    """The result of one model call: token ids, their log-probabilities, and whether the model ended its turn itself."""

    tokens: list[int]
    logprobs: list[float]
    ended: bool


@dataclass(frozen=True)
class ParsedTurn:
    """An assistant's turn, parsed.

    Attributes:
        content: The text without calls, thinking and end-of-turn tokens.
        reasoning: The text in thinking tags before it.
        calls: The tool calls.
        malformed: Whether a call begins that cannot be parsed.
    """

    content: str
    reasoning: str = ""
    calls: Sequence[ToolCall] = ()
    malformed: bool = False


@dataclass(frozen=True)
class SamplingParams:
    """How tokens are sampled; ``top_k`` -1 and ``top_p`` 1 are off, temperature 0 takes the most likely token."""

    temperature: float
    top_p: float
    top_k: int


class LanguageModel(Protocol):
    """The model that is trained or evaluated."""

    template: ChatTemplate

    async def generate(
        self, request_id: str, tokens: list[int], sampling: SamplingParams, max_tokens: int
    ) -> SampledTokens:
        """Sample up to ``max_tokens`` after ``tokens``; requests of one conversation share a ``request_id``.

        Raises:
            EpisodeFailure: the engine failed.
        """

    async def parse(self, tokens: Sequence[int], tools: Sequence[Any]) -> ParsedTurn:
        """Parse an assistant's turn."""

    def text(self, tokens: Sequence[int]) -> str:
        """Decode tokens, without special ones."""


def split_thinking(text: str) -> tuple[str, str]:
    """Split a text into thinking and answer; unfinished thinking leaves an empty answer."""
    thinking, end_tag, answer = text.partition(THINKING_ENDS)
    if end_tag:
        return thinking.replace(_THINKING_BEGINS, "", 1).strip(), answer.lstrip("\n")
    if text.lstrip().startswith(_THINKING_BEGINS):
        return text.replace(_THINKING_BEGINS, "", 1).strip(), ""
    return "", text


def cut_at_stop(
    tokens: Sequence[int], stops: Sequence[str], text_of: Callable[[Sequence[int]], str]
) -> int | None:
    """How many tokens it takes until one of ``stops`` appears in the text, or None if none does."""
    if not stops or not any(stop in text_of(tokens) for stop in stops):
        return None
    low, high = 1, len(tokens)
    while low < high:
        middle = (low + high) // 2
        if any(stop in text_of(tokens[:middle]) for stop in stops):
            high = middle
        else:
            low = middle + 1
    return low
