"""What goes into a scorer and what comes out, and what becomes of an answer that was to be scored.

A score that could not be had is no score of 0: a judge that abstains, a scorer that is stuck or broken leave the score
out (None), and whoever asked leaves the episode out with it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from aworld_train.reward.settings import RewardSettings


class ScoreOutcome(StrEnum):
    """What became of an answer that was to be scored."""

    scored = "scored"
    no_answer = "no_answer"
    abstained = "abstained"
    timeout = "timeout"
    error = "error"


@dataclass(frozen=True)
class Score:
    """What a scorer says of an answer.

    Attributes:
        value: The score; None where the scorer cannot tell, and abstains.
        parts: Named figures that show up in metrics, such as ``format`` or ``judge_cost``.
        steps: How it came to that, a line each, for people.
    """

    value: float | None
    parts: Mapping[str, float] = field(default_factory=dict)
    steps: tuple[str, ...] = ()


@dataclass(frozen=True)
class ScoringContext:
    """What a scorer may know beside the answer and the ground truth.

    Attributes:
        query: What was asked.
        text: All that the assistant said.
        info: The row's ``extra_info``.
        episode: Facts of the episode (``tool_call_count``, ``tool_error_count``, ``num_turns``); empty offline.
        settings: How the run scores.
    """

    query: str = ""
    text: str = ""
    info: Mapping[str, Any] = field(default_factory=dict)
    episode: Mapping[str, Any] = field(default_factory=dict)
    settings: RewardSettings = field(default_factory=RewardSettings)


@dataclass(frozen=True)
class ScoreResult:
    """An answer that was scored, or why it was not.

    Attributes:
        score: None where there is none: ``abstained``, ``timeout`` and ``error``.
        extracted: The answer that was found; None where there is none.
        outcome: What became of it.
        parts: Named figures.
        steps: How it came to that, a line each.
        cause: Why there is no score.
        scorer: Name of the scorer.
    """

    score: float | None
    extracted: str | None
    outcome: ScoreOutcome
    parts: Mapping[str, float]
    steps: tuple[str, ...]
    cause: str | None
    scorer: str
