"""The input and output of scorers.

Where a judge abstains, or a scorer fails for a reason that is not the answer, there is no score and the episode is
dropped. An answer that a scorer cannot cope with is wrong: were it dropped, a policy would learn to write such answers.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from aworld_train.reward.settings import RewardSettings


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
