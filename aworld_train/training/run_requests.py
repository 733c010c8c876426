"""What a running run is asked for: to save and stop, or another number of samplers.

The run saves and stops after SIGUSR1, which a scheduler can send some time before it ends a job, and for an early stop.
The framework writes a checkpoint after the current step, and the run ends once it has, or when the time is over. An
early stop has time, and needs no further step if the last validated one has its checkpoint.
"""

import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from aworld_train.adapter.base import MAX_SAMPLERS, SAMPLERS_REQUEST, SAVE_REQUEST
from aworld_train.atomic import write_text
from aworld_train.errors import UsageError
from aworld_train.interruptible import signal_handlers
from aworld_train.recipe.schema import Mode, TrainerSection
from aworld_train.training.recorded_run import open_run
from aworld_train.training.run_files import is_in_use


class StopRequest:
    """``fulfilled`` once the run was ended by the request; ``early`` is why it stops early."""

    def __init__(self, run_dir: Path, max_seconds: float):
        self._file = run_dir / SAVE_REQUEST
        self._file.unlink(missing_ok=True)
        self._max_seconds = max_seconds
        self._received: float | None = None
        self._saved_before: int | None = None
        self.fulfilled = False
        self.early: str | None = None

    @contextmanager
    def listening(self) -> Iterator[None]:
        with signal_handlers({signal.SIGUSR1: self._receive}):
            try:
                yield
            finally:
                self._file.unlink(missing_ok=True)

    @property
    def received(self) -> bool:
        return self._received is not None or self.early is not None

    def stop_early(self, reason: str, step: int) -> None:
        if not self.received:
            self.early, self._saved_before = reason, step - 1

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self._received = self._received or time.monotonic()

    def reason(self, saved: int, recorded: int) -> str | None:
        """The reason to end the run now; None without a request or while the checkpoint is still to come.

        ``saved`` is the step of the last complete checkpoint (0 for none), ``recorded`` the last with metrics.
        """
        if not self.received:
            return None
        if self._saved_before is None:
            self._saved_before = saved
        if saved <= self._saved_before:
            self._file.touch()
        over = self._received is not None and time.monotonic() - self._received > self._max_seconds
        # A checkpoint whose step has no metrics yet is enough when there is no time left to wait for them.
        if saved > self._saved_before and (recorded >= saved or over):
            self.fulfilled = True
            return self.early or "The run was asked to save and stop (SIGUSR1), and did."
        if over:
            self.fulfilled = True
            return (
                f"The run was asked to save and stop (SIGUSR1), and no step ended within {self._max_seconds:.0f} "
                "seconds of that."
            )
        return None


def early_stop_reason(qualities: Mapping[int, float], patience: int) -> str | None:
    """Why a run ends before its last step, by its validations (see ``val_quality``)."""
    steps = sorted(qualities)
    if not patience or len(steps) <= patience:
        return None
    best = max(steps, key=lambda step: (qualities[step], -step))
    later = len(steps) - 1 - steps.index(best)
    if later < patience:
        return None
    quality = qualities[best]
    best_figure, beaten = f"accuracy of step {best}, {quality:.1%}", "exceeded"
    if quality < 0:
        best_figure, beaten = f"held-out loss of step {best}, {-quality:.4g}", "undercut"
    return (
        f"Stopped early after step {steps[-1]}: the {best_figure}, was not {beaten} "
        f"in the {later} validations since (trainer.early_stop={patience})."
    )


def ask_for_samplers(name: str, number: int, runs: Path) -> Path:
    """Ask a running run for another number of samplers; returns the folder of the run."""
    if not 1 <= number <= MAX_SAMPLERS:
        raise UsageError(f"A run can have 1 to {MAX_SAMPLERS} samplers, not {number}.")
    run = open_run(name, runs)
    mode = (run.recipe.get("trainer") or {}).get("mode") or TrainerSection.mode.value
    if mode != Mode.separate_async.value:
        raise UsageError(
            f"The run {run.name} has trainer.mode: {mode}, whose training processes sample. Only with "
            "separate_async are there samplers beside them."
        )
    if not is_in_use(run.path):
        raise UsageError(
            f"The run {run.name} is not running. Continue it with `train --resume`; rollout.samplers says how many "
            "samplers it begins with."
        )
    write_text(run.path / SAMPLERS_REQUEST, f"{number}\n")
    return run.path
