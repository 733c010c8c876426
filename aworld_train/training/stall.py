"""The one watch over a start of a framework: it is ended when nothing has happened for too long."""

import time


class StallWatch:
    """Measures how long nothing has happened.

    Args:
        timeout: Seconds after which that is too long (``trainer.stall_timeout``).
    """

    def __init__(self, timeout: float):
        self._timeout = timeout
        self._last = time.monotonic()

    def reset(self) -> None:
        """Something happened."""
        self._last = time.monotonic()

    def reason(self, state: str) -> str | None:
        """The reason to stop, with what was going on (a sentence); None while there is none."""
        silent = time.monotonic() - self._last
        if silent <= self._timeout:
            return None
        return (
            f"No episode, step or validation ended for {silent:.0f} seconds (trainer.stall_timeout is "
            f"{self._timeout:g}). {state}"
        )
