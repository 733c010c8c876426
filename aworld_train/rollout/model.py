"""The interface of a language model: a chat template, tokens in and out, and the parsing of tool calls."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, Self

from aworld_train.episode.images import Image
from aworld_train.episode.tool_calls import ToolCall
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
    """The result of one model call; ``versions`` is None if the engine does not say.

    Where new weights came in the middle, ``parts`` have the place of each part's first token and its version.
    """

    tokens: list[int]
    logprobs: list[float]
    ended: bool
    versions: WeightVersions | None = None
    top_logprobs: Sequence[Sequence[tuple[int, float]]] = ()
    parts: tuple[tuple[int, int], ...] = ()

    def cut_at(self, length: int) -> Self:
        parts = tuple(part for part in self.parts if part[0] < length)
        return replace(
            self,
            tokens=self.tokens[:length],
            logprobs=self.logprobs[:length],
            top_logprobs=self.top_logprobs[:length],
            ended=False,
            versions=WeightVersions(parts[0][1], parts[-1][1]) if parts else self.versions,
            parts=parts,
        )


@dataclass(frozen=True)
class ParsedTurn:
    """It is ``malformed`` where a call begins that cannot be parsed, and nothing after it is read; ``unfinished`` where
    a thought has no end. ``call_id`` is what the model wrote, if it wrote one.
    """

    content: str
    reasoning: str = ""
    calls: Sequence[ToolCall] = ()
    malformed: bool = False
    unfinished: bool = False


@dataclass(frozen=True)
class SamplingParams:
    """How tokens are sampled; ``top_p`` 1 and ``top_k`` -1 are off, and engines may continue after a ``stop``."""

    temperature: float
    top_p: float
    top_k: int
    stop: tuple[str, ...] = ()
    top_logprobs: int = 0
    seed: int | None = None


class LanguageModel(Protocol):
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
        """Sample up to ``max_tokens`` after ``tokens``; requests of one conversation share a ``request_id``."""

    async def parse(
        self, tokens: Sequence[int], tools: Sequence[Mapping[str, Any]], prompt: Sequence[int]
    ) -> ParsedTurn:
        """Parse an assistant's turn after ``prompt``, which may have opened a thought; tools give arguments their
        types."""

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
