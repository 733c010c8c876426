"""The state of a run in a small file, so that another terminal can show the live screen too."""

import contextlib
import time
from pathlib import Path

import msgspec

from aworld_train.training.progress import Progress, Status, show_status
from aworld_train.training.recorded_run import RecordedRun, open_run

_FILE = Path("logs", "status.json")
_WRITE_SECONDS = 1.0


class StatusFile:
    def __init__(self, run_dir: Path):
        self._path = run_dir / _FILE
        self._path.unlink(missing_ok=True)
        self._written = float("-inf")

    def write(self, status: Status) -> None:
        """Write the state, unless that was done within the last second."""
        if time.monotonic() - self._written < _WRITE_SECONDS:
            return
        self._written = time.monotonic()
        partial = self._path.with_suffix(".partial")
        # A disk that is full now may have room later, and a sync of a file that is soon replaced takes time.
        with contextlib.suppress(OSError):
            partial.touch(mode=0o600)
            partial.write_bytes(msgspec.json.encode(status))
            partial.replace(self._path)


def follow(run_dir: Path, progress: Progress) -> RecordedRun:
    """Show the states of a run that another process trains until it ends; returns the run as it is then."""
    ended: tuple[int, int] | None = None
    while (run := open_run(str(run_dir), run_dir.parent)).status == "running":
        # Before the first state there is no file.
        with contextlib.suppress(OSError, msgspec.DecodeError):
            status = msgspec.json.decode((run_dir / _FILE).read_bytes(), type=Status)
            ended = show_status(progress, status, ended)
        time.sleep(_WRITE_SECONDS)
    return run
