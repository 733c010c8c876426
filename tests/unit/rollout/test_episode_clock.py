"""An episode's time does not pass while it waits for a worker, and its waits have an end too."""

import asyncio

import pytest

from aworld_train.rollout.episode_clock import EpisodeClock, limit, waiting_for_worker


class Time:
    """What the running event loop takes for the time."""

    def __init__(self, patch: pytest.MonkeyPatch):
        self._now = 0.0
        patch.setattr(asyncio.get_running_loop(), "time", lambda: self._now)

    async def passes(self, seconds: float) -> None:
        self._now += seconds
        for _ in range(3):  # until timers have fired and who waited for them has heard of it
            await asyncio.sleep(0)


async def test_a_wait_is_no_part_of_an_episode_s_time(monkeypatch: pytest.MonkeyPatch) -> None:
    time = Time(monkeypatch)
    with pytest.raises(TimeoutError):
        async with EpisodeClock(10, 100) as clock:
            await time.passes(9)
            with waiting_for_worker():
                await time.passes(90)
            await time.passes(0.9)
            with waiting_for_worker():
                await time.passes(9)
            is_reached = True
            await time.passes(0.2)
    assert is_reached and not clock.ended_waiting


async def test_waits_that_overlap_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    time = Time(monkeypatch)
    with pytest.raises(TimeoutError):
        async with EpisodeClock(10, 100) as clock:
            with clock.waiting():
                await time.passes(20)
                with clock.waiting():
                    await time.passes(20)
                await time.passes(20)
            await time.passes(9)
            is_reached = True
            await time.passes(2)
    assert is_reached


async def test_all_waits_together_have_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    time = Time(monkeypatch)
    with pytest.raises(TimeoutError):
        async with EpisodeClock(10, 5) as clock:
            with clock.waiting():
                await time.passes(4)
            with clock.waiting():
                await time.passes(10.9)
                is_reached = True
                await time.passes(0.2)
    assert is_reached and clock.ended_waiting
    with clock.waiting():
        pass  # a late one changes nothing


async def test_an_agent_has_a_limit_of_its_own_where_no_episode_has(monkeypatch: pytest.MonkeyPatch) -> None:
    time = Time(monkeypatch)
    await time.passes(3)
    with waiting_for_worker():
        assert limit(5).when() == 8
    async with EpisodeClock(10, 5):
        assert limit(5).when() is None
    assert limit(5).when() == 8
