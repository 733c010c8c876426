"""The time in which requests to a server fail, and the pauses before one is sent again."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

_FIRST_PAUSE = 0.5


@dataclass
class Outage:
    """The failures of one request in a row; ``max_seconds`` begin at the first: a request may itself take longer."""

    max_seconds: float
    max_pause: float
    now: Callable[[], float] = time.monotonic
    seconds: float = 0.0
    _began: float | None = None
    _pause: float = field(default=_FIRST_PAUSE)

    def pause(self, retry_after: float) -> float | None:
        """Seconds to wait after another failure, at least as long as the server asks for; None to give it up."""
        now = self.now()
        self._began = now if self._began is None else self._began
        self.seconds = now - self._began
        seconds = max(retry_after, self._pause * random.uniform(0.5, 1.0))
        self._pause = min(2 * self._pause, self.max_pause)
        return seconds if self.seconds + seconds <= self.max_seconds else None
