"""Detects that a run makes no progress, so that it is ended, and says which part of it is stuck."""

import time
from pathlib import Path

from aworld_train import waits
from aworld_train.training.environment import RunEnvironment, answers
from aworld_train.training.stacks import stopped_processes, write_stacks
from aworld_train.training.stuck import Stuck, find_stuck

_LOSS_SECONDS = 10.0
"""A process that has lost another one may end the run by itself, with a better error, for this long."""


class StallWatch:
    def __init__(self, timeout: float, run_dir: Path):
        self._timeout = timeout
        self._run_dir = run_dir
        self._last = self._read = time.monotonic()
        self._phases: set[str] = set()
        self._loss = ""
        self._loss_since = 0.0
        self.environment: RunEnvironment | None = None
        self.stuck: Stuck | None = None

    def reset(self) -> None:
        self._last = time.monotonic()

    def reason(self, state: str) -> str | None:
        """The reason to end the run, with ``state`` (sentences); None while there is none.

        The stacks of the run's processes on this machine are written into its ``logs/`` then.
        """
        self._read_waits()
        now = time.monotonic()
        if self._loss and now - self._loss_since > _LOSS_SECONDS:
            self.stuck = Stuck("process", f"{self._loss}.")
            return f"{self._loss[:1].upper()}{self._loss[1:]}. {state}"
        silent = now - self._last
        if silent <= self._timeout:
            return None
        environment_answers = self.environment is None or answers(self.environment)
        self.stuck = stuck = find_stuck(
            waits.read(self._run_dir), silent, environment_answers=environment_answers
        )
        stopped = stopped_processes()
        stacks = write_stacks(self._run_dir / "logs")
        return " ".join(
            [
                f"No sign of progress for {silent:.0f} seconds (trainer.stall_timeout is {self._timeout:g}).",
                f"Stuck: {stuck.part}. {stuck.text}",
                *([f"Stopped by a signal: {', '.join(stopped)}."] if stopped else []),
                state,
                *([f"Where its processes were is in {stacks}."] if stacks else []),
            ]
        )

    def _read_waits(self) -> None:
        """Take another phase of the trainer for progress: with a large model one step has phases of many minutes."""
        now = time.monotonic()
        if now - self._read < waits.WRITE_SECONDS:
            return
        self._read = now
        processes = waits.read(self._run_dir)
        loss = next((process.loss for process in processes if process.loss), "")
        if loss and not self._loss:
            self._loss, self._loss_since = loss.rstrip("."), now
        open_waits = [wait for process in processes for wait in process.waits]
        phases = {wait.name or wait.kind for wait in open_waits if wait.kind in ("phase", "episode")}
        if phases != self._phases:
            self._phases = phases
            self.reset()
