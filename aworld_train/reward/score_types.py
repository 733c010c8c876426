"""The input and output of scorers, and the result of scoring an answer.

Where a judge abstains, or a scorer fails for a reason that is not the answer, the score is None and the episode is left
out. An answer that a scorer cannot cope with is wrong: were it left out, a policy would learn to write such answers.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from aworld_train.reward.settings import RewardSettings

JUDGES_REFUSE = "judges_refuse"
"""The part of a score that says that no judge takes any request, as with a wrong key or a spent quota."""


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
    """A scorer's result for an answer, or None where it abstains, and how it arrived at it in ``steps``, for people.

    ``parts`` are named numbers for metrics, such as ``judge_cost``. ``is_provoked``: the answer may be why there is no
    score, as where a judge replied without a verdict.
    """

    value: float | None
    parts: Mapping[str, float] = field(default_factory=dict)
    steps: tuple[str, ...] = ()
    is_provoked: bool = False


@dataclass(frozen=True)
class ScoringContext:
    """What a scorer gets beside the answer and the ground truth.

    ``info`` is the row's ``extra_info``; ``episode`` has ``tool_call_count``, ``tool_error_count`` and ``num_turns``,
    and is empty offline.
    """

    query: str = ""
    text: str = ""
    info: Mapping[str, Any] = field(default_factory=dict)
    episode: Mapping[str, Any] = field(default_factory=dict)
    settings: RewardSettings = field(default_factory=RewardSettings)


@dataclass(frozen=True)
class ScoreResult:
    """The result of scoring an answer; ``score`` is None for ``abstained``, ``timeout`` and ``error``."""

    score: float | None
    extracted: str | None
    outcome: ScoreOutcome
    parts: Mapping[str, float]
    steps: tuple[str, ...]
    cause: str | None
    scorer: str

    @property
    def judges_refuse(self) -> bool:
        """Whether there is no score because no judge takes any request; ``composite`` names parts by their scorer."""
        return self.score is None and any(name.endswith(JUDGES_REFUSE) for name in self.parts)
