"""How many requests to a server may be under way: fewer once it refuses some, and slowly more again.

As TCP does it (additive increase, multiplicative decrease; Jacobson 1988): a refusal halves the number, and as many
answers as requests are allowed raise it by one. Requests that were sent before a refusal was known lower it only once.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable


class AdaptiveLimit:
    def __init__(self, most: int, *, clock: Callable[[], float] = time.monotonic):
        self.allowed = float(most)
        self._most = most
        self._clock = clock
        self._under_way = 0
        self._pause_ends = 0.0
        self._lowered = float("-inf")
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._wake: asyncio.TimerHandle | None = None

    async def acquire(self) -> float:
        """Wait until a request may begin; returns the clock's time at which it does."""
        while self._waiting or not self._is_free():
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            self._wake_next()
            try:
                await turn
            except asyncio.CancelledError:
                if turn in self._waiting:
                    self._waiting.remove(turn)
                else:
                    self._wake_next()
                raise
            if self._is_free():
                break
        self._under_way += 1
        self._wake_next()
        return self._clock()

    def release(self) -> None:
        self._under_way -= 1
        self._wake_next()

    def answered(self) -> None:
        self.allowed = min(float(self._most), self.allowed + 1 / self.allowed)

    def refused(self, began: float, pause: float) -> None:
        """The server has refused a request because there were too many; none begins for ``pause`` seconds."""
        now = self._clock()
        self._pause_ends = max(self._pause_ends, now + pause)
        if began >= self._lowered:
            self.allowed = max(1.0, self.allowed / 2)
            self._lowered = now

    def _is_free(self) -> bool:
        return self._under_way < int(self.allowed) and self._clock() >= self._pause_ends

    def _wake_next(self) -> None:
        if self._wake is not None:
            self._wake.cancel()
            self._wake = None
        if not self._waiting:
            return
        if self._is_free():
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
        elif (pause := self._pause_ends - self._clock()) > 0:
            self._wake = asyncio.get_running_loop().call_later(pause, self._wake_next)
