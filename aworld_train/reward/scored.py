"""The input and output of scorers, and the result of scoring an answer.

A missing score is not 0: where a judge abstains, or a scorer fails for a reason that is not the answer, the score is
None, and the caller leaves the episode out. An answer that a scorer cannot cope with is wrong: were it left out, a
policy would learn to write such answers where it does not know the right one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from aworld_train.reward.settings import RewardSettings


class ScoreOutcome(StrEnum):
    scored = "scored"
    no_answer = "no_answer"
    too_hard = "too_hard"
    """The scorer fails on this answer and copes with the ground truth; the score is 0."""
    abstained = "abstained"
    timeout = "timeout"
    error = "error"


class TooHard(Exception):
    """Raised by a scorer for an answer that it will not compute, such as ``9^{9^9}``: the answer scores 0."""


@dataclass(frozen=True)
class Score:
    """A scorer's result for an answer.

    Attributes:
        value: The score; None where the scorer abstains.
        parts: Named numbers that appear in metrics, such as ``format`` or ``judge_cost``.
        is_provoked: Whether the answer may be why there is none, as where a judge replied without a verdict.
    """

    value: float | None
    parts: Mapping[str, float] = field(default_factory=dict)
    steps: tuple[str, ...] = ()
    is_provoked: bool = False


@dataclass(frozen=True)
class ScoringContext:
    """What a scorer gets beside the answer and the ground truth.

    Attributes:
        info: The row's ``extra_info``.
        episode: Facts of the episode (``tool_call_count``, ``tool_error_count``, ``num_turns``); empty offline.
    """

    query: str = ""
    text: str = ""
    info: Mapping[str, Any] = field(default_factory=dict)
    episode: Mapping[str, Any] = field(default_factory=dict)
    settings: RewardSettings = field(default_factory=RewardSettings)


@dataclass(frozen=True)
class ScoreResult:
    """The result of scoring an answer.

    Attributes:
        score: The score; None for ``abstained``, ``timeout`` and ``error``.
    """

    score: float | None
    extracted: str | None
    outcome: ScoreOutcome
    parts: Mapping[str, float]
    steps: tuple[str, ...]
    cause: str | None
    scorer: str
