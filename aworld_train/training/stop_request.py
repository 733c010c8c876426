"""A request to save and stop: SIGUSR1, which a scheduler can send some time before it ends a job, or an early stop.

The framework then writes a checkpoint after the step under way, and the run ends once it has. If that takes longer than
the time that is left, the run ends with the checkpoint that there is. An early stop has time, and needs no further
step if the last one that was validated has its checkpoint.
"""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from aworld_train.adapter.base import SAVE_REQUEST


class StopRequest:
    """The request of one attempt at a run.

    Args:
        run_dir: The run folder.
        max_seconds: Seconds after the request at which the run ends in any case.

    Attributes:
        fulfilled: Whether the run was ended because of the request.
        early: Why the run stops early; None if it does not.
    """

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
        """Take the signal while the context is open."""
        if threading.current_thread() is not threading.main_thread():
            yield  # only the main thread can set signal handlers
            return
        before = signal.signal(signal.SIGUSR1, self._receive)
        try:
            yield
        finally:
            signal.signal(signal.SIGUSR1, before)
            self._file.unlink(missing_ok=True)

    @property
    def received(self) -> bool:
        """Whether there was a request."""
        return self._received is not None or self.early is not None

    def stop_early(self, reason: str, step: int) -> None:
        """Ask for an early stop after a step was validated."""
        if not self.received:
            self.early, self._saved_before = reason, step - 1

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self._received = self._received or time.monotonic()

    def reason(self, saved: int, recorded: int) -> str | None:
        """The reason to end the run now; None if there was no request or the checkpoint is still to come.

        Args:
            saved: Step of the last complete checkpoint; 0 for none.
            recorded: Last step whose metrics are recorded.
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
