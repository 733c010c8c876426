"""What requests hold is never more than the budget and the shares of it; who waits for room gets it in a fair order."""

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import StreamReader, web
from aiohttp.base_protocol import BaseProtocol
from aiohttp.test_utils import make_mocked_request
from hypothesis import given
from hypothesis import strategies as st

from aworld_train.serving.env_gateway import request_limits
from aworld_train.serving.env_gateway.request_limits import (
    HELD_BYTES,
    MAX_MESSAGE_BYTES,
    READ_BYTES,
    WINDOW_BYTES,
    WINDOW_READ_BYTES,
    Budget,
    ByteAllowance,
    Refusal,
    RequestBody,
    part_of,
)

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


async def test_as_many_go_on_as_there_is_room_for() -> None:
    budget = Budget(TOTAL, TOTAL, 60)
    await budget.take("first", 100)
    tasks = await waiting(budget, ("many", 50), ("many", 50))
    budget.release("first", 100)
    assert await settled(tasks) == [True, True]


async def test_who_gives_up_waiting_for_much_lets_those_go_on_who_need_little() -> None:
    budget = Budget(TOTAL, SHARE, 60)
    await budget.take("a", 50)
    await budget.take("b", 30)
    much, little = await waiting(budget, ("c", 50), ("d", 10))
    assert await settled([much, little]) == [False, False]
    much.cancel()
    assert await settled([much, little]) == [True, True]
    assert (much.cancelled(), budget.used) == (True, 90)


async def test_who_waits_too_long_is_refused_and_told_when_to_come_again() -> None:
    budget = Budget(TOTAL, SHARE, 0.01)
    await budget.take("a", 60)
    with pytest.raises(Refusal, match="no memory") as refused:
        await budget.take("a", 1)
    response = refused.value.response()
    assert (response.status, response.headers["Retry-After"]) == (503, "5")
    message = "the gateway had no memory for this within 0.01 seconds"
    assert json.loads(str(response.text))["error"] == {"code": -32600, "message": message}
    assert budget.waiting == 0
    await budget.take("b", 40)


async def test_who_gets_room_as_its_wait_ends_goes_on() -> None:
    budget = Budget(TOTAL, SHARE, 0)  # the wait is over when the loop comes to it
    await budget.take("a", 60)
    (late,) = await waiting(budget, ("a", 60))
    budget.release("a", 60)
    await late
    assert (budget.used, budget.waiting) == (60, 0)


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


# Bodies


def body_of(budget: Budget, *parts: bytes, max_bytes: int = TOTAL, **headers: Any) -> tuple[RequestBody, Any]:
    """A body, of which these parts have come, and how to send more of it."""
    protocol = BaseProtocol(asyncio.get_running_loop())
    protocol.transport = asyncio.Transport()  # it is connected
    content = StreamReader(protocol, 1 << 16)
    for part in parts:
        content.feed_data(part)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    request = make_mocked_request("POST", "/", headers=named, payload=content)
    return RequestBody(request, ByteAllowance(budget, "a"), max_bytes), content


@pytest.mark.parametrize("length", [0, 1, TOTAL, TOTAL + 1])
@pytest.mark.parametrize("is_declared", [False, True])
async def test_a_body_is_read_up_to_its_limit_and_holds_what_it_has(length: int, is_declared: bool) -> None:
    budget = Budget(2 * TOTAL, 2 * TOTAL, 60)
    text = bytes(range(length))
    headers: dict[str, Any] = {"Content_Length": str(length)} if is_declared else {}
    try:
        body, content = body_of(budget, text[: length // 2], text[length // 2 :], **headers)
        content.feed_eof()
        assert await body.read() == text
    except Refusal as refusal:
        assert (length, refusal.status, refusal.cause) == (TOTAL + 1, 413, "body")
        assert refusal.response().keep_alive is False
    else:
        assert budget.used == length <= TOTAL


async def test_a_body_is_not_cut_off_at_its_limit() -> None:
    body, content = body_of(Budget(), b"x" * TOTAL)
    reading = asyncio.create_task(body.read())
    await settled([])
    content.feed_data(b"y")
    content.feed_eof()
    with pytest.raises(Refusal, match=f"at most {TOTAL} bytes"):
        await reading


async def test_a_compressed_body_is_refused() -> None:
    with pytest.raises(Refusal) as refused:
        body_of(Budget(), b"x", Content_Encoding="gzip")
    assert (refused.value.status, refused.value.cause) == (415, "body")
    assert refused.value.response().keep_alive is not False


@pytest.mark.parametrize("length", [0, HELD_BYTES, HELD_BYTES + 1, 3 * HELD_BYTES])
@pytest.mark.parametrize("is_declared", [False, True])
async def test_a_body_is_streamed_through_a_window_where_it_is_long(length: int, is_declared: bool) -> None:
    budget = Budget()
    text = bytes(index % 251 for index in range(length))
    headers: dict[str, Any] = {"Content_Length": str(length)} if is_declared else {}
    first, rest = text[: HELD_BYTES + 1], text[HELD_BYTES + 1 :]
    body, content = body_of(budget, first, max_bytes=MAX_MESSAGE_BYTES, **headers)
    if length <= HELD_BYTES:
        content.feed_eof()
    message = await body.read_or_stream()
    held = min(length, HELD_BYTES) if is_declared else HELD_BYTES
    if length <= HELD_BYTES:
        assert (message, budget.used) == (text, held)
    else:
        assert not isinstance(message, bytes) and budget.used == held + WINDOW_BYTES
        content.feed_data(rest)
        content.feed_eof()
        assert await anext(message) == first
        transport: Any = body._transport
        assert transport.max_size == WINDOW_READ_BYTES
        assert first + b"".join([chunk async for chunk in message]) == text
        assert (budget.used, transport.max_size) == (0, READ_BYTES)
    assert body.refusal is None


async def test_a_request_without_a_body_holds_nothing() -> None:
    budget = Budget()
    request = make_mocked_request("GET", "/")
    body = RequestBody(request, ByteAllowance(budget, "a"), MAX_MESSAGE_BYTES)
    assert (await body.read_or_stream(), budget.used) == (b"", 0)


async def test_a_stream_that_becomes_too_long_ends_with_the_reason() -> None:
    budget = Budget()
    body, content = body_of(budget, b"x" * (HELD_BYTES + 1), max_bytes=HELD_BYTES + 2)
    message = await body.read_or_stream()
    assert not isinstance(message, bytes)
    content.feed_data(b"yy")
    with pytest.raises(Refusal) as refused:
        assert [chunk async for chunk in message] == []
    assert (refused.value.status, body.refusal, budget.used) == (413, refused.value, 0)


async def test_only_the_time_in_which_a_client_is_waited_for_counts_as_slow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(request_limits, "STALL_SECONDS", 10.0)
    monkeypatch.setattr(request_limits, "MIN_RATE", 10)
    now, timeouts = 0.0, list[float]()

    def timeout(seconds: float) -> asyncio.Timeout:
        timeouts.append(round(seconds, 6))
        return asyncio.timeout(None)

    monkeypatch.setattr(request_limits, "time", SimpleNamespace(monotonic=lambda: now))
    body, content = body_of(Budget())
    for seconds, data in ((9.0, b"x" * 20), (1.0, b"y" * 10), (0.0, b"z")):
        with monkeypatch.context() as patch:
            patch.setattr(request_limits, "asyncio", SimpleNamespace(timeout=timeout))
            chunk = asyncio.create_task(body._chunk())
            await asyncio.sleep(0)
        now += seconds
        content.feed_data(data)
        assert await chunk == data
        now += 1000  # the worker takes its time
        content.feed_data(b"more" * 5)
        assert await body._chunk() == b"more" * 5  # it is there already
    assert timeouts == [10.0, 10 + 4.0 - 9, 10 + 7.0 - 10]


# Messages


@pytest.mark.parametrize(
    ("message", "part"),
    [(b'{"id": 7}', 7), (b'{"x": 1}', None), (b"[1]", None), (b"{", None), (b"[" * 100_000, None)],
)
def test_a_part_of_what_is_no_message_is_none(message: bytes, part: object) -> None:
    assert part_of(message, "id") == part


@pytest.mark.parametrize("is_read", [False, True])
@pytest.mark.parametrize(("status", "cause"), [(400, "body"), (408, "slow")])
async def test_a_body_that_breaks_off_closes_its_connection(
    monkeypatch: pytest.MonkeyPatch, status: int, cause: str, is_read: bool
) -> None:
    if status == 408:
        monkeypatch.setattr(request_limits, "STALL_SECONDS", 0.0)
    body, content = body_of(Budget(), b"x")
    reading = asyncio.create_task(body.read())
    if is_read:
        await settled([])
    if status == 400:
        content.set_exception(web.RequestPayloadError("no chunk"))
    with pytest.raises(Refusal) as refused:
        await reading
    assert (refused.value.status, refused.value.cause) == (status, cause)
    assert refused.value.response().keep_alive is False
