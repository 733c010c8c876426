"""Detects that a run makes no progress, so that it is ended."""

import time


class StallWatch:
    """Measures the time since the last progress.

    Args:
        timeout: Seconds without progress after which the run is ended (``trainer.stall_timeout``).
    """

    def __init__(self, timeout: float):
        self._timeout = timeout
        self._last = time.monotonic()

    def reset(self) -> None:
        """Record that there was progress."""
        self._last = time.monotonic()

    def reason(self, state: str) -> str | None:
        """The reason to end the run, followed by ``state`` (a sentence); None while there is no reason."""
        silent = time.monotonic() - self._last
        if silent <= self._timeout:
            return None
        return (
            f"No episode, step or validation ended for {silent:.0f} seconds (trainer.stall_timeout is "
            f"{self._timeout:g}). {state}"
        )
