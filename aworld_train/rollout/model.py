"""The interface of a language model: a chat template, tokens in and out, and the parsing of tool calls."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, Self

from aworld_train.rollout.images import Image
from aworld_train.rollout.messages import ToolCall
from aworld_train.rollout.template import ChatTemplate


class WeightVersions(NamedTuple):
    """The first and the last version of the weights that tokens were sampled with, in steps of the trainer."""

    first: int
    last: int

    @classmethod
    def span(cls, versions: Iterable[Self | None]) -> Self | None:
        """From the first to the last of several; None if none is known."""
        known = [each for each in versions if each is not None]
        return cls(min(each.first for each in known), max(each.last for each in known)) if known else None


@dataclass(frozen=True)
class SampledTokens:
    """The result of one model call.

    Attributes:
        tokens: Token ids.
        logprobs: The log-probability of each.
        ended: Whether the model ended its turn itself.
        versions: The versions of the weights, which may change meanwhile; None if the engine does not say.
        top_logprobs: For each token, the most likely ones in its place with their log-probabilities, if wanted.
    """

    tokens: list[int]
    logprobs: list[float]
    ended: bool
    versions: WeightVersions | None = None
    top_logprobs: Sequence[Sequence[tuple[int, float]]] = ()


@dataclass(frozen=True)
class ParsedTurn:
    """An assistant's turn, parsed.

    Attributes:
        content: The text without calls, thoughts and special tokens.
        reasoning: The thoughts; one that has no end is thought as well.
        calls: The tool calls; ``call_id`` is what the model wrote, if it wrote one.
        malformed: Whether a call begins that cannot be parsed; nothing after it is read.
        unfinished: Whether a thought has no end.
    """

    content: str
    reasoning: str = ""
    calls: Sequence[ToolCall] = ()
    malformed: bool = False
    unfinished: bool = False


@dataclass(frozen=True)
class SamplingParams:
    """How tokens are sampled.

    Attributes:
        temperature: 0 takes the most likely token.
        top_p: 1 is off.
        top_k: -1 is off.
        stop: Texts after which no more tokens are needed; an engine may go on.
        top_logprobs: How many of the most likely tokens are wanted with each sampled one.
        seed: Of the random numbers; None leaves it to the engine.
    """

    temperature: float
    top_p: float
    top_k: int
    stop: tuple[str, ...] = ()
    top_logprobs: int = 0
    seed: int | None = None


class LanguageModel(Protocol):
    """The model that is trained or evaluated.

    Attributes:
        template: Its chat template.
        max_top_logprobs: How many of the most likely tokens its engine can return.
    """

    template: ChatTemplate
    max_top_logprobs: int

    async def generate(
        self,
        request_id: str,
        tokens: list[int],
        sampling: SamplingParams,
        max_tokens: int,
        images: Sequence[Image] = (),
    ) -> SampledTokens:
        """Sample up to ``max_tokens`` after ``tokens``; requests of one conversation share a ``request_id``.

        Args:
            request_id: The conversation.
            tokens: The prompt.
            sampling: How tokens are sampled.
            max_tokens: The most that are sampled.
            images: The images whose tokens are in the prompt, in order.

        Raises:
            EpisodeFailure: the engine failed.
        """

    async def parse(
        self, tokens: Sequence[int], tools: Sequence[Mapping[str, Any]], prompt: Sequence[int]
    ) -> ParsedTurn:
        """Parse an assistant's turn.

        Args:
            tokens: The turn.
            tools: OpenAI function schemas, by which arguments get their types.
            prompt: The tokens before the turn, which may have opened a thought.
        """

    def text(self, tokens: Sequence[int]) -> str:
        """Decode tokens, without special ones."""


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
