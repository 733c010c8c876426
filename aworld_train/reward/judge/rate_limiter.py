"""Rate limits for requests to judges of one process: how many at the same time, and how many in any minute.

aiolimiter 1.3.0 was measured and not taken: its leaky bucket let 39 requests begin within one period at a limit of 20,
and it cannot say beforehand that a turn is beyond the deadline.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

_MINUTE = 60.0


class RateLimitTimeout(Exception):
    """A request could not begin before its deadline."""


class RateLimiter:
    """Lets requests begin within the limits (0 per minute: none); belongs to one event loop."""

    def __init__(
        self,
        concurrency: int,
        per_minute: int,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ):
        self._slots = asyncio.Semaphore(concurrency)
        self._per_minute = per_minute
        self._starts: deque[float] = deque(maxlen=per_minute)
        self._clock = clock
        self._sleep = sleep

    @asynccontextmanager
    async def turn(self, seconds: float) -> AsyncIterator[None]:
        """The block is one request; raises RateLimitTimeout if it could not begin within so many seconds."""
        if seconds <= 0:
            raise RateLimitTimeout("its time was over")
        deadline = self._clock() + seconds
        try:
            async with asyncio.timeout(seconds):
                await self._slots.acquire()
        except TimeoutError as error:
            raise RateLimitTimeout("too many other requests were waiting") from error
        try:
            await self._wait_for_start(deadline)
            yield
        finally:
            self._slots.release()

    async def _wait_for_start(self, deadline: float) -> None:
        if not self._per_minute:
            return
        now = self._clock()
        start = max(now, self._starts[0] + _MINUTE) if len(self._starts) == self._per_minute else now
        if start > deadline:
            raise RateLimitTimeout(
                f"its turn among {self._per_minute} requests a minute is {start - now:.0f} s away"
            )
        # Recorded before the wait, so that the next request counts it; the deque drops the oldest.
        self._starts.append(start)
        if start > now:
            await self._sleep(start - now)
