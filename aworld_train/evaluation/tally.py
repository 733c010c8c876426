"""The figures of a running evaluation: enough for its progress and its limits, whatever its size."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from aworld_train.episode.figures import EpisodeFigures
from aworld_train.evaluation.statistics import average, average_interval
from aworld_train.training.progress import Status

PHASE = "eval"
"""The phase of an evaluation's episodes in the store."""
_MILLION = 1e6


def cost_of(figures: EpisodeFigures, prices: Mapping[str, float] | None) -> float | None:
    """What an attempt costs by the prices of a million tokens, ``input`` and ``output``; None without prices."""
    if prices is None:
        return None
    given, sampled = figures.given_tokens or 0, figures.sampled_tokens or 0
    return (given * prices["input"] + sampled * prices["output"]) / _MILLION


@dataclass
class Tally:
    """Counts attempts as they end, those of earlier processes included.

    ``refusal`` names the endpoints that took no request at all for the last attempt; ``faults`` are failed requests
    that were sent again, by kind.
    """

    expected: int
    prices: Mapping[str, float] | None
    ended: int = 0
    errors: int = 0
    tokens: int = 0
    cost: float = 0.0
    tool_calls: int = 0
    errors_in_a_row: int = 0
    last_cause: str = ""
    refusal: str = ""
    faults: dict[str, int] = field(default_factory=dict)
    _scores: dict[str, list[float]] = field(default_factory=dict)
    _began: float = field(default_factory=time.monotonic)
    _before: int = 0

    def begin(self) -> None:
        """Count the time from now on: what has been added so far was done before."""
        self._began, self._before = time.monotonic(), self.ended
        self.errors_in_a_row = 0

    def add(self, task: str, figures: EpisodeFigures) -> None:
        self.ended += 1
        self.tokens += (figures.given_tokens or 0) + (figures.sampled_tokens or 0)
        self.cost += cost_of(figures, self.prices) or 0.0
        self.tool_calls += figures.tool_calls or 0
        for kind, count in (figures.faults or {}).items():
            self.faults[kind] = self.faults.get(kind, 0) + count
        score = figures.accuracy
        if score is None:
            self.errors += 1
            self.errors_in_a_row += 1
            self.refusal = figures.refusal or ""
            self.last_cause = figures.cause or figures.outcome or ""
            return
        self.errors_in_a_row = 0
        self._scores.setdefault(task, []).append(score)

    @property
    def accuracy(self) -> float | None:
        return average(self._scores) if self._scores else None

    def status(self, phase: str = "evaluating") -> Status:
        done = self.ended - self._before
        seconds = time.monotonic() - self._began
        left = (self.expected - self.ended) * seconds / done if done else None
        return Status(
            phase=phase,
            step=0,
            steps=0,
            episodes=self.ended,
            episodes_expected=self.expected,
            accuracy=self.accuracy,
            interval=average_interval(self._scores) if self._scores else None,
            tool_calls=self.tool_calls,
            errors=self.errors,
            cost=self.cost if self.prices is not None else None,
            seconds_left=left,
        )
