"""How a run restarts after a failure that may not happen again: a few times, and later each time."""

import time

from aworld_train.errors import AworldTrainError
from aworld_train.training.progress import Progress
from aworld_train.training.stop_request import StopRequest

_FIRST_SECONDS, _MAX_SECONDS = 5.0, 300.0
_LOOK_SECONDS = 0.5


class Restarts:
    def __init__(self, most: int, stop_request: StopRequest):
        self._most = most
        self._stop_request = stop_request
        self.done = 0

    @property
    def pause(self) -> float:
        """Seconds before the next one, doubled each time: what was lost may take a while to come back."""
        return min(_MAX_SECONDS, _FIRST_SECONDS * 2.0**self.done)

    def wait(self, failure: AworldTrainError, progress: Progress) -> None:
        if self.done >= self._most or self._stop_request.received:
            raise failure
        progress.note(f"{failure.message}")
        progress.note(f"Restart {self.done + 1} of {self._most} in {self.pause:.0f} seconds.")
        due = time.monotonic() + self.pause
        while time.monotonic() < due:
            time.sleep(_LOOK_SECONDS)
            if self._stop_request.received:
                raise failure
        self.done += 1
