"""How fast judges are asked: so many requests at the same time, and so many in any minute.

A request that could not begin in time does not wait: it is told so at once. The pace is kept by one process; several
that score share a server's limits only as far as each is given its part.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

_MINUTE = 60.0


class RateLimitTimeout(Exception):
    """A request would have begun too late."""


class RateLimiter:
    """Gives turns; belongs to one event loop.

    Args:
        concurrency: Most requests at the same time.
        per_minute: Most requests that begin within any 60 seconds; 0 for no limit.
        clock: Seconds that only grow.
        sleep: Waits for so many seconds of that clock.
    """

    def __init__(
        self,
        concurrency: int,
        per_minute: int,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ):
        self._places = asyncio.Semaphore(concurrency)
        self._per_minute = per_minute
        self._begun: deque[float] = deque(maxlen=per_minute)
        self._clock = clock
        self._sleep = sleep

    @asynccontextmanager
    async def turn(self, seconds: float) -> AsyncIterator[None]:
        """The block is one request, which must begin within so many seconds.

        Raises:
            NoTurn: It could not.
        """
        if seconds <= 0:
            raise RateLimitTimeout("its time was over")
        until = self._clock() + seconds
        try:
            async with asyncio.timeout(seconds):
                await self._places.acquire()
        except TimeoutError as error:
            raise RateLimitTimeout("too many other requests were waiting") from error
        try:
            await self._wait_for_the_minute(until)
            yield
        finally:
            self._places.release()

    async def _wait_for_the_minute(self, until: float) -> None:
        if not self._per_minute:
            return
        now = self._clock()
        start = max(now, self._begun[0] + _MINUTE) if len(self._begun) == self._per_minute else now
        if start > until:
            raise RateLimitTimeout(
                f"its turn among {self._per_minute} requests a minute is {start - now:.0f} s away"
            )
        # Noted before the wait, so that whoever comes next counts from here; the oldest falls out.
        self._begun.append(start)
        if start > now:
            await self._sleep(start - now)
