"""The time that an episode may take, which does not pass while it waits for a free tool worker."""

import asyncio
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from types import TracebackType
from typing import Self

_current: ContextVar["EpisodeClock | None"] = ContextVar("episode_clock", default=None)


class EpisodeClock:
    """Raises ``TimeoutError`` where the block takes longer: ``async with EpisodeClock(600, 3600) as clock: ...``.

    ``queue_seconds`` is what its waits may take together; ``ended_waiting`` whether the time ended during one.
    """

    def __init__(self, seconds: float, queue_seconds: float):
        self._limit = asyncio.timeout(seconds)
        self._queue_seconds = queue_seconds
        self._waits, self._since = 0, 0.0
        self.ended_waiting = False

    async def __aenter__(self) -> Self:
        await self._limit.__aenter__()
        self._token = _current.set(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _current.reset(self._token)
        await self._limit.__aexit__(kind, error, trace)

    @property
    def expired(self) -> bool:
        """Whether the time is over; a ``TimeoutError`` before that is the block's own."""
        return self._limit.expired()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """A wait for a worker; several may overlap."""
        now = asyncio.get_running_loop().time
        if not self._waits:
            self._since = now()
            self._postpone(self._queue_seconds)
        self._waits += 1
        try:
            yield
        finally:
            self._waits -= 1
            self.ended_waiting = self.ended_waiting or self._limit.expired()
            if not self._waits:
                unused = max(0.0, self._queue_seconds - (now() - self._since))
                self._postpone(-unused)
                self._queue_seconds = unused

    def _postpone(self, seconds: float) -> None:
        end = self._limit.when()
        with suppress(RuntimeError):  # it is over
            self._limit.reschedule(None if end is None else end + seconds)


def waiting_for_worker() -> AbstractContextManager[None]:
    """A wait of the episode that this code runs for, if it runs for one."""
    clock = _current.get()
    return clock.waiting() if clock else nullcontext()


def current_clock() -> EpisodeClock | None:
    return _current.get()


def limit(seconds: float) -> asyncio.Timeout:
    """The limit of an agent that is not played by an episode, whose clock would end it."""
    return asyncio.timeout(seconds if _current.get() is None else None)
