"""The rate limits of judges, on a clock that moves only when a request waits."""

import asyncio
from dataclasses import dataclass, field

import pytest

from aworld_train.reward.judge.rate_limiter import RateLimiter, RateLimitTimeout


@dataclass
class Clock:
    """Seconds that pass only by waiting."""

    now: float = 0.0
    waits: list[float] = field(default_factory=list)

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds


async def starts(limiter: RateLimiter, clock: Clock, count: int, seconds: float = 1e6) -> list[float]:
    begun = []
    for _ in range(count):
        async with limiter.turn(seconds):
            begun.append(clock.now)
    return begun


async def test_no_minute_has_more_requests_than_it_may() -> None:
    clock = Clock()
    begun = await starts(RateLimiter(4, 3, clock=clock, sleep=clock.sleep), clock, 10)
    assert begun == [0, 0, 0, 60, 60, 60, 120, 120, 120, 180]


async def test_a_minute_is_any_sixty_seconds() -> None:
    clock = Clock()
    limiter = RateLimiter(4, 2, clock=clock, sleep=clock.sleep)
    assert await starts(limiter, clock, 1) == [0]
    clock.now = 50
    assert await starts(limiter, clock, 3) == [50, 60, 110]


async def test_without_a_limit_no_request_waits() -> None:
    clock = Clock()
    assert await starts(RateLimiter(1, 0, clock=clock, sleep=clock.sleep), clock, 100) == [0] * 100
    assert clock.waits == []


async def test_a_request_that_would_begin_too_late_is_refused_at_once_and_uses_no_turn() -> None:
    clock = Clock()
    limiter = RateLimiter(4, 1, clock=clock, sleep=clock.sleep)
    assert await starts(limiter, clock, 1) == [0]
    for _ in range(5):
        with pytest.raises(RateLimitTimeout, match="60 s away"):
            await starts(limiter, clock, 1, seconds=30)
    assert clock.waits == []
    assert await starts(limiter, clock, 1, seconds=60) == [60]


async def test_no_more_requests_run_at_once_than_allowed() -> None:
    limiter, running, max_running = RateLimiter(3, 0), 0, 0

    async def one() -> None:
        nonlocal running, max_running
        async with limiter.turn(30):
            running += 1
            max_running = max(max_running, running)
            await asyncio.sleep(0)
            running -= 1

    await asyncio.gather(*(one() for _ in range(20)))
    assert max_running == 3


async def test_a_request_that_waits_too_long_for_a_slot_is_refused() -> None:
    limiter = RateLimiter(1, 0)
    async with limiter.turn(30):
        with pytest.raises(RateLimitTimeout, match="other requests"):
            await starts(limiter, Clock(), 1, seconds=0.01)
    assert len(await starts(limiter, Clock(), 1)) == 1


async def test_a_slot_is_free_again_after_a_failure_and_after_cancellation() -> None:
    limiter = RateLimiter(1, 0)
    with pytest.raises(ZeroDivisionError):
        async with limiter.turn(30):
            raise ZeroDivisionError
    held = asyncio.Event()

    async def hold() -> None:
        async with limiter.turn(30):
            held.set()
            await asyncio.Event().wait()

    holding = asyncio.create_task(hold())
    await held.wait()
    holding.cancel()
    await asyncio.wait([holding])
    assert len(await starts(limiter, Clock(), 1)) == 1


@pytest.mark.parametrize("seconds", [0.0, -1.0])
async def test_a_request_without_time_left_is_refused(seconds: float) -> None:
    with pytest.raises(RateLimitTimeout, match="over"):
        await starts(RateLimiter(1, 0), Clock(), 1, seconds=seconds)
