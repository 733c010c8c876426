"""The progress of a build: its clocks, its current step, and all of its measurements."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class BuildStatus:
    """The current step of a build.

    Attributes:
        attempt: Number of the model, from 1.
        phase: The lesson: ``tool`` or ``guess``.
        step: Update within the lesson, from 1.
        loss: Mean loss of a token in this step.
        accuracy: Greedy accuracy when it was last measured.
        seconds: Wall time since the build began.
    """

    attempt: int
    phase: str
    step: int
    loss: float
    accuracy: float | None
    seconds: float


class OutOfTime(Exception):
    """The build has used up its processor time."""


class BuildProgress:
    """Records the progress of a build and reports it to a callback."""

    def __init__(self, progress: Callable[[BuildStatus], None] | None, max_cpu_seconds: float) -> None:
        self._progress, self._max_cpu_seconds = progress, max_cpu_seconds
        self._started, self._cpu_started = time.monotonic(), time.process_time()
        self._accuracy: float | None = None
        self.attempt, self.phase = 0, ""
        self.history: list[dict[str, Any]] = []

    @property
    def seconds(self) -> float:
        """Wall time since the build began."""
        return round(time.monotonic() - self._started, 1)

    @property
    def cpu_seconds(self) -> float:
        """Processor time since the build began."""
        return round(time.process_time() - self._cpu_started, 1)

    def stepped(self, step: int, loss: float) -> None:
        """Record one update.

        Raises:
            OutOfTime: The processor time is used up.
        """
        if self._progress:
            self._progress(BuildStatus(self.attempt, self.phase, step, loss, self._accuracy, self.seconds))
        if self.cpu_seconds > self._max_cpu_seconds:
            raise OutOfTime

    def measured(self, step: int, accuracy: float, **values: float) -> None:
        """Record one measurement."""
        self._accuracy = accuracy
        position = {"attempt": self.attempt, "phase": self.phase, "step": step}
        self.history.append({**position, "accuracy": accuracy, **values})
