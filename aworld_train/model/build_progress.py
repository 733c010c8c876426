"""The progress of a build: its clocks, its current step, and all of its measurements."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class BuildStatus:
    """The current step of a build: ``phase`` is the lesson, ``tool`` or ``guess``; attempts and steps count from 1."""

    attempt: int
    phase: str
    step: int
    loss: float
    accuracy: float | None
    seconds: float


class OutOfTime(Exception):
    pass


class TinyBuildProgress:
    def __init__(self, progress: Callable[[BuildStatus], None] | None, max_cpu_seconds: float) -> None:
        self._progress, self._max_cpu_seconds = progress, max_cpu_seconds
        self._started, self._cpu_started = time.monotonic(), time.process_time()
        self._accuracy: float | None = None
        self.attempt, self.phase = 0, ""
        self.history: list[dict[str, Any]] = []

    @property
    def seconds(self) -> float:
        return round(time.monotonic() - self._started, 1)

    @property
    def cpu_seconds(self) -> float:
        return round(time.process_time() - self._cpu_started, 1)

    def stepped(self, step: int, loss: float) -> None:
        """Record one update; raises ``OutOfTime``."""
        if self._progress:
            self._progress(BuildStatus(self.attempt, self.phase, step, loss, self._accuracy, self.seconds))
        if self.cpu_seconds > self._max_cpu_seconds:
            raise OutOfTime

    def measured(self, step: int, accuracy: float, **values: float) -> None:
        self._accuracy = accuracy
        position = {"attempt": self.attempt, "phase": self.phase, "step": step}
        self.history.append({**position, "accuracy": accuracy, **values})
