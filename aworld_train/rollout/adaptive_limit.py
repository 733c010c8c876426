"""How many requests to a server may be under way: fewer once it refuses some, and slowly more again.

As TCP does it (additive increase, multiplicative decrease; Jacobson 1988): a refusal halves the number, and as many
answers as requests are allowed raise it by one. Requests that were sent before a refusal was known lower it only once.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress


class AdaptiveLimit:
    def __init__(self, most: int, *, clock: Callable[[], float] = time.monotonic):
        self.allowed = float(most)
        self._most = most
        self._clock = clock
        self._under_way = 0
        self._pause_ends = 0.0
        self._lowered = float("-inf")
        self._turn = asyncio.Lock()  # held by the request that is next: first come, first served
        self._changed = asyncio.Event()

    async def acquire(self) -> float:
        """Wait until a request may begin; returns the clock's time at which it does."""
        async with self._turn:
            while not self._is_free():
                self._changed.clear()
                pause = self._pause_ends - self._clock()
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause if pause > 0 else None):
                        await self._changed.wait()
            self._under_way += 1
        return self._clock()

    def release(self) -> None:
        self._under_way -= 1
        self._changed.set()

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
