"""The pace of judges, on a clock that moves only when somebody waits for it."""

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


async def starts(pace: RateLimiter, clock: Clock, count: int, seconds: float = 1e6) -> list[float]:
    begun = []
    for _ in range(count):
        async with pace.turn(seconds):
            begun.append(clock.now)
    return begun


async def test_no_minute_has_more_requests_than_it_may() -> None:
    clock = Clock()
    begun = await starts(RateLimiter(4, 3, clock=clock, sleep=clock.sleep), clock, 10)
    assert begun == [0, 0, 0, 60, 60, 60, 120, 120, 120, 180]


async def test_a_minute_is_any_sixty_seconds() -> None:
    clock = Clock()
    pace = RateLimiter(4, 2, clock=clock, sleep=clock.sleep)
    assert await starts(pace, clock, 1) == [0]
    clock.now = 50
    assert await starts(pace, clock, 3) == [50, 60, 110]


async def test_without_a_limit_nobody_waits() -> None:
    clock = Clock()
    assert await starts(RateLimiter(1, 0, clock=clock, sleep=clock.sleep), clock, 100) == [0] * 100
    assert clock.waits == []


async def test_a_request_that_would_begin_too_late_is_told_at_once_and_takes_no_turn() -> None:
    clock = Clock()
    pace = RateLimiter(4, 1, clock=clock, sleep=clock.sleep)
    assert await starts(pace, clock, 1) == [0]
    for _ in range(5):
        with pytest.raises(RateLimitTimeout, match="60 s away"):
            await starts(pace, clock, 1, seconds=30)
    assert clock.waits == []
    assert await starts(pace, clock, 1, seconds=60) == [60]


async def test_no_more_are_asked_at_a_time_than_may_be() -> None:
    pace, now, most = RateLimiter(3, 0), 0, 0

    async def one() -> None:
        nonlocal now, most
        async with pace.turn(30):
            now += 1
            most = max(most, now)
            await asyncio.sleep(0)
            now -= 1

    await asyncio.gather(*(one() for _ in range(20)))
    assert most == 3


async def test_whoever_finds_all_places_taken_for_too_long_is_told() -> None:
    pace = RateLimiter(1, 0)
    async with pace.turn(30):
        with pytest.raises(RateLimitTimeout, match="other requests"):
            await starts(pace, Clock(), 1, seconds=0.01)
    assert len(await starts(pace, Clock(), 1)) == 1


async def test_a_place_is_free_again_after_a_failure_and_after_being_cancelled() -> None:
    pace = RateLimiter(1, 0)
    with pytest.raises(ZeroDivisionError):
        async with pace.turn(30):
            raise ZeroDivisionError
    held = asyncio.Event()

    async def hold() -> None:
        async with pace.turn(30):
            held.set()
            await asyncio.Event().wait()

    holding = asyncio.create_task(hold())
    await held.wait()
    holding.cancel()
    await asyncio.wait([holding])
    assert len(await starts(pace, Clock(), 1)) == 1


@pytest.mark.parametrize("seconds", [0.0, -1.0])
async def test_whoever_has_no_time_left_gets_no_turn(seconds: float) -> None:
    with pytest.raises(RateLimitTimeout, match="over"):
        await starts(RateLimiter(1, 0), Clock(), 1, seconds=seconds)
