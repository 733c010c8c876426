"""How many requests an endpoint gets at a time."""

import asyncio

import pytest

from aworld_train.rollout.adaptive_limit import AdaptiveLimit


async def begun(limit: AdaptiveLimit, count: int) -> list["asyncio.Task[float]"]:
    """Requests that have been asked for, after those that may begin have begun."""
    tasks = [asyncio.create_task(limit.acquire()) for _ in range(count)]
    for _ in range(10):
        await asyncio.sleep(0)
    return tasks


async def test_no_more_begin_than_are_allowed_and_the_next_ones_in_their_order() -> None:
    limit = AdaptiveLimit(2)
    tasks = await begun(limit, 4)
    assert [task.done() for task in tasks] == [True, True, False, False]
    limit.release()
    await asyncio.sleep(0.01)
    assert [task.done() for task in tasks] == [True, True, True, False]
    limit.release()
    await asyncio.wait_for(tasks[3], 60)


async def test_a_refusal_halves_them_once_for_all_that_were_sent_before_it() -> None:
    now = [0.0]
    limit = AdaptiveLimit(16, clock=lambda: now[0])
    started = [await limit.acquire() for _ in range(16)]
    now[0] = 1.0
    for began in started:
        limit.refused(began, 0.0)
    assert limit.allowed == 8
    limit.refused(now[0], 0.0)
    assert limit.allowed == 4


async def test_at_least_one_is_allowed_and_as_many_answers_as_requests_allow_one_more() -> None:
    now = [0.0]
    limit = AdaptiveLimit(8, clock=lambda: now[0])
    for _ in range(10):
        now[0] += 1
        limit.refused(now[0], 0.0)
    assert limit.allowed == 1
    for _ in range(3):
        limit.answered()
    assert limit.allowed == pytest.approx(1 + 1 + 1 / 2 + 1 / 2.5)
    for _ in range(1000):
        limit.answered()
    assert limit.allowed == 8


async def test_none_begins_while_the_server_wants_a_pause() -> None:
    limit = AdaptiveLimit(4)
    limit.refused(await limit.acquire(), 0.05)
    limit.release()
    (waiting,) = await begun(limit, 1)
    assert not waiting.done()
    await asyncio.wait_for(waiting, 60)


async def test_one_that_is_given_up_takes_no_place() -> None:
    limit = AdaptiveLimit(1)
    first, second, third = await begun(limit, 3)
    second.cancel()
    limit.release()
    assert first.done()
    await asyncio.wait_for(third, 60)
    with pytest.raises(asyncio.CancelledError):
        await second
