"""What requests hold is never more than the budget and the shares of it; who waits for room gets it in a fair order."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aworld_train.serving.env_gateway.intake import Budget, ByteAllowance, Refusal

TOTAL, SHARE = 100, 60


async def waiting(budget: Budget, *requests: tuple[str, int]) -> list["asyncio.Task[None]"]:
    """Requests that have come to where they wait, in this order."""
    tasks = []
    for token, amount in requests:
        tasks.append(asyncio.create_task(budget.take(token, amount)))
        await asyncio.sleep(0)
    return tasks


async def settled(tasks: list["asyncio.Task[None]"]) -> list[bool]:
    """Which of them go on."""
    for _ in range(3):
        await asyncio.sleep(0)
    return [task.done() for task in tasks]


async def test_a_token_with_its_share_in_use_waits_and_others_do_not() -> None:
    budget = Budget(TOTAL, SHARE, 60)
    await budget.take("greedy", 50)
    tasks = await waiting(budget, ("greedy", 20), ("other", 20))
    assert await settled(tasks) == [False, True]
    budget.release("greedy", 50)
    assert await settled(tasks) == [True, True]
    assert (budget.used, budget.waiting) == (40, 0)


async def test_who_needs_much_is_not_overtaken_for_ever_by_who_needs_little() -> None:
    budget = Budget(TOTAL, SHARE, 60)
    await budget.take("a", 50)
    await budget.take("b", 30)
    tasks = await waiting(budget, ("c", 50), ("d", 10))
    assert await settled(tasks) == [False, False]
    budget.release("b", 30)
    assert await settled(tasks) == [True, False]
    budget.release("a", 50)
    assert await settled(tasks) == [True, True]


async def test_tokens_take_turns_however_many_requests_one_has_waiting() -> None:
    budget = Budget(TOTAL, TOTAL, 60)
    await budget.take("first", 100)
    tasks = await waiting(budget, *[("many", 50)] * 4, ("one", 50))
    budget.release("first", 100)
    assert await settled(tasks) == [True, False, False, False, True]


async def test_who_waits_too_long_is_refused_and_told_when_to_come_again() -> None:
    budget = Budget(TOTAL, SHARE, 0.01)
    await budget.take("a", 60)
    with pytest.raises(Refusal, match="no memory") as refused:
        await budget.take("a", 1)
    response = refused.value.response()
    assert (response.status, response.headers["Retry-After"]) == (503, "5")
    assert budget.waiting == 0
    await budget.take("b", 40)


async def test_who_gives_up_waiting_leaves_nothing_behind() -> None:
    budget = Budget(TOTAL, SHARE, 60)
    await budget.take("a", 60)
    (gone, next_one) = await waiting(budget, ("a", 60), ("a", 60))
    gone.cancel()
    budget.release("a", 60)
    assert await settled([gone, next_one]) == [True, True]
    assert (gone.cancelled(), budget.used, budget.waiting) == (True, 60, 0)


async def test_who_gives_up_in_the_moment_of_its_turn_gives_it_to_the_next() -> None:
    budget = Budget(TOTAL, SHARE, 60)
    await budget.take("a", 60)
    gone, next_one = await waiting(budget, ("a", 60), ("a", 60))
    budget.release("a", 60)
    gone.cancel()
    assert await settled([gone, next_one]) == [True, True]
    assert (gone.cancelled(), budget.used) == (True, 60)


async def test_a_request_that_is_over_has_given_back_everything_and_gives_no_more() -> None:
    budget = Budget(TOTAL, SHARE, 60)
    with ByteAllowance(budget, "a") as account:
        await account.take(20)
        await account.take(30)
        account.release(10)
        assert budget.used == 40
    account.release(10)
    assert budget.used == 0


STEPS = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, SHARE), st.sampled_from(["take", "give", "give up"])),
    max_size=30,
)


@given(STEPS)
def test_whatever_happens_no_more_is_held_than_there_is_and_nothing_gets_lost(
    steps: list[tuple[str, int, str]],
) -> None:
    asyncio.run(play(steps))


async def play(steps: list[tuple[str, int, str]]) -> None:
    budget = Budget(TOTAL, SHARE, 60)
    requests: list[tuple[str, int, asyncio.Task[None]]] = []
    for token, amount, action in steps:
        if action == "take":
            (task,) = await waiting(budget, (token, amount))
            requests.append((token, amount, task))
        elif requests:
            old_token, old_amount, task = requests.pop(amount % len(requests))
            if action == "give up" or not task.done():
                task.cancel()
            await settled([task])
            if not task.cancelled():
                budget.release(old_token, old_amount)
        await settled([task for _, _, task in requests])
        held = [(token, amount) for token, amount, task in requests if task.done()]
        assert budget.used == sum(amount for _, amount in held) <= TOTAL
        assert all(sum(amount for token, amount in held if token == one) <= SHARE for one in "abc")
        assert budget.waiting == len(requests) - len(held)
    for _, _, task in requests:
        task.cancel()
    for token, amount, task in requests:
        await settled([task])
        if not task.cancelled():
            budget.release(token, amount)
    assert (budget.used, budget.waiting) == (0, 0)
