"""Workers for sessions: first come, first served; nobody waits for ever, and no turn and no worker gets lost."""

import asyncio
import contextlib
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aworld_train.serving.channel import Channel
from aworld_train.serving.env_gateway import pool as pool_module
from aworld_train.serving.env_gateway.pool import Busy, Pool, WorkerSession
from aworld_train.serving.env_gateway.worker_client import WorkerClient


def worker(number: int, slots: int = 1, scoring: bool = False) -> WorkerClient:
    """A worker that has said that it is ready."""
    link = WorkerClient(
        number, "", Channel("a secret"), scoring, lambda: None, lambda link: None, lambda *_: None
    )
    link._handle_line({"ready": True, "slots": slots, "servers": [], "broken": {}})
    return link


def pool(*links: WorkerClient, max_queue: int = 100) -> Pool:
    workers = Pool(max_queue)
    workers.links = list(links)
    return workers


async def waiting(workers: Pool, *names: str, seconds: float = 60.0) -> list["asyncio.Task[WorkerClient]"]:
    """Requests that have come to where they wait, in this order."""
    tasks = []
    for name in names:
        tasks.append(asyncio.create_task(workers.reserve(name, seconds)))
        await asyncio.sleep(0)
    return tasks


async def test_a_worker_for_scoring_is_given_for_scoring_alone_and_no_other_is() -> None:
    agents, scorers = worker(0), worker(1, scoring=True)
    workers = pool(agents, scorers)
    assert await workers.reserve("agent", 1.0) is agents
    (next_agent,) = await waiting(workers, "next agent")
    # It waits behind nobody who waits for the other kind.
    assert await workers.reserve("scoring", 1.0, scoring=True) is scorers
    next_scoring = asyncio.create_task(workers.reserve("next scoring", 60.0, scoring=True))
    await asyncio.sleep(0)
    assert workers.queued == 2
    workers.release(scorers, "scoring")
    assert await next_scoring is scorers
    assert not next_agent.done()
    workers.release(agents, "agent")
    assert await next_agent is agents
    assert workers.states()["busy"] == workers.states(scoring=True)["busy"] == 1


async def test_a_free_worker_is_given_at_once_even_to_who_does_not_wait() -> None:
    first, second = worker(0), worker(1)
    workers = pool(first, second)
    assert await workers.reserve("a", 0) is first
    assert await workers.reserve("b", 0) is second
    with pytest.raises(Busy, match="no worker became free within 0 seconds"):
        await workers.reserve("c", 0)
    assert (first.sessions, second.sessions, workers.queued) == ({"a"}, {"b"}, 0)


async def test_those_who_wait_are_served_in_the_order_in_which_they_came() -> None:
    one = worker(0)
    workers = pool(one)
    await workers.reserve("first", 0)
    tasks = await waiting(workers, "a", "b", "c")
    assert workers.queued == 3
    for index, name in enumerate("abc"):
        workers.release(one, next(iter(one.sessions)))
        assert await tasks[index] is one
        assert one.sessions == {name}
        assert not any(task.done() for task in tasks[index + 1 :])
    assert workers.queued == 0


async def test_a_newcomer_does_not_overtake_those_who_wait() -> None:
    one = worker(0)
    workers = pool(one)
    await workers.reserve("first", 0)
    (waiter,) = await waiting(workers, "waiter")
    one.sessions.discard("first")  # free, but nobody has been told yet
    (newcomer,) = await waiting(workers, "newcomer")
    assert await waiter is one
    assert not newcomer.done()
    newcomer.cancel()


async def test_who_waits_too_long_is_told_so_and_leaves_no_trace() -> None:
    one = worker(0)
    workers = pool(one)
    await workers.reserve("first", 0)
    with pytest.raises(Busy, match=r"within 0\.01 seconds"):
        await workers.reserve("late", 0.01)
    assert workers.queued == 0
    workers.release(one, "first")
    assert one.sessions == set()
    assert await workers.reserve("next", 0) is one


async def test_a_worker_that_becomes_free_as_a_wait_ends_is_given() -> None:
    one = worker(0)
    workers = pool(one)
    await workers.reserve("first", 0)
    (late,) = await waiting(workers, "late", seconds=0)  # its time is over when the loop comes to it
    workers.release(one, "first")
    assert await late is one
    assert one.sessions == {"late"}


async def test_a_wait_is_reported_with_how_many_are_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "REPORT_SECONDS", 0.01)
    one = worker(0)
    workers = pool(one)
    await workers.reserve("first", 0)
    gone, _ = await waiting(workers, "gone", "second")
    reports: asyncio.Queue[tuple[int, int]] = asyncio.Queue()

    async def report(ahead: int, states: Mapping[str, int]) -> None:
        reports.put_nowait((ahead, states["busy"]))

    third = asyncio.create_task(workers.reserve("third", 60, report=report))
    async with asyncio.timeout(10):
        assert await reports.get() == (2, 1)
        gone.cancel()
        while await reports.get() != (1, 1):
            pass
        workers.release(one, "first")
        while await reports.get() != (0, 1):
            pass
        workers.release(one, "second")
        assert await third is one


async def test_a_wait_that_cannot_be_reported_ends_and_leaves_no_trace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pool_module, "REPORT_SECONDS", 0.01)
    one = worker(0)
    workers = pool(one)
    await workers.reserve("first", 0)

    async def report(ahead: int, states: Mapping[str, int]) -> None:
        raise ConnectionResetError("gone")

    with pytest.raises(ConnectionResetError):
        await workers.reserve("second", 60, report=report)
    assert workers.queued == 0
    workers.release(one, "first")
    assert await workers.reserve("third", 0) is one


async def test_who_gives_up_waiting_is_passed_over() -> None:
    one = worker(0)
    workers = pool(one)
    await workers.reserve("first", 0)
    gone, next_one = await waiting(workers, "gone", "next")
    gone.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await gone
    assert workers.queued == 1
    workers.release(one, "first")
    assert await next_one is one
    assert one.sessions == {"next"}


async def test_who_gives_up_in_the_moment_of_being_served_gives_the_worker_to_the_next() -> None:
    one = worker(0)
    workers = pool(one)
    await workers.reserve("first", 0)
    gone, next_one = await waiting(workers, "gone", "next")
    workers.release(one, "first")
    assert one.sessions == {"gone"}
    gone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gone
    assert await next_one is one
    assert one.sessions == {"next"}


async def test_a_full_queue_turns_away_only_who_would_have_to_wait() -> None:
    one = worker(0)
    workers = pool(one, max_queue=1)
    await workers.reserve("first", 0)
    (waiter,) = await waiting(workers, "waiter")
    with pytest.raises(Busy, match="1 sessions are waiting"):
        await workers.reserve("too many", 60)
    assert workers.queued == 1
    workers.release(one, "first")
    assert await waiter is one
    nobody_waits = pool(worker(0), max_queue=0)
    await nobody_waits.reserve("a", 60)
    with pytest.raises(Busy, match="0 sessions are waiting"):
        await nobody_waits.reserve("b", 60)


async def test_a_shared_worker_takes_as_many_as_it_says_and_the_least_loaded_is_taken_first() -> None:
    first, second = worker(0, slots=3), worker(1, slots=3)
    workers = pool(first, second)
    for number in range(6):
        await workers.reserve(str(number), 0)
        assert abs(len(first.sessions) - len(second.sessions)) <= 1
    with pytest.raises(Busy):
        await workers.reserve("one more", 0)


@pytest.mark.parametrize("lack", [{"alive": False}, {"ready": False}])
async def test_a_worker_that_is_lost_or_not_clean_yet_is_not_given(lack: dict[str, bool]) -> None:
    one = worker(0)
    for name, value in lack.items():
        setattr(one, name, value)
    workers = pool(one)
    (waiter,) = await waiting(workers, "a")
    assert not waiter.done()
    one.alive = one.ready = True
    workers.dispatch()
    assert await waiter is one


def test_states_count_every_worker_once() -> None:
    ready, busy, cleaning, down = (worker(number) for number in range(4))
    busy.sessions.add("a")
    cleaning.ready = False
    down.alive = False
    assert pool(ready, busy, cleaning, down).states() == {"ready": 1, "busy": 1, "cleaning": 1, "down": 1}


def test_a_session_knows_when_it_was_last_active() -> None:
    session = WorkerSession("a", worker(0), "token")
    assert (session.requests, session.vanished, session.is_open) == (0, None, False)
    assert session.last_active > 0


def test_only_open_sessions_count_for_their_token() -> None:
    workers = pool(worker(0))
    for name, token, is_open in (("a", "t", True), ("b", "t", True), ("c", "t", False), ("d", "other", True)):
        workers.sessions[name] = WorkerSession(name, worker(0), token, is_open=is_open)
    assert [workers.sessions_of(token) for token in ("t", "other", "none")] == [2, 1, 0]


STEPS = st.lists(
    st.tuples(st.sampled_from(["come", "go", "give up", "lose", "return"]), st.integers(0, 5)), max_size=40
)


@given(st.lists(st.integers(1, 2), min_size=1, max_size=3), STEPS)
def test_whatever_happens_the_order_is_kept_and_no_worker_has_too_many_or_stands_idle(
    slots: list[int], steps: list[tuple[str, int]]
) -> None:
    asyncio.run(play(slots, steps))


async def play(slots: list[int], steps: list[tuple[str, int]]) -> None:
    links = [worker(number, many) for number, many in enumerate(slots)]
    workers = pool(*links, max_queue=8)
    came: dict[str, asyncio.Task[WorkerClient]] = {}
    served: list[str] = []

    async def reserve(name: str) -> WorkerClient:
        link = await workers.reserve(name, 60)
        served.append(name)
        return link

    def act(action: str, number: int) -> None:
        if action == "come":
            name = f"{len(came):03}"
            came[name] = asyncio.create_task(reserve(name))
        elif action == "give up" and number < len(came):
            list(came.values())[number].cancel()
        elif number < len(links):
            link = links[number]
            if action == "go" and link.sessions:
                workers.release(link, min(link.sessions))
            elif action == "lose":
                link.alive = False
                link.sessions.clear()
            elif action == "return":
                link.alive = True
                workers.dispatch()

    for action, number in steps:
        act(action, number)
        for _ in range(3):
            await asyncio.sleep(0)
        assert all(len(link.sessions) <= many for link, many in zip(links, slots, strict=True))
        assert not workers.queued or not any(link.free for link in links)
        assert workers.queued <= 8
        assert served == sorted(served)
    for task in came.values():
        task.cancel()
    await asyncio.gather(*came.values(), return_exceptions=True)
    assert workers.queued == 0
