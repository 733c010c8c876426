"""What passes between a client and the worker of its session, and what the client gets where that worker is lost."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.typedefs import Handler

from aworld_train.serving.env_gateway import proxy_request
from aworld_train.serving.env_gateway.app import GatewayLimits
from aworld_train.serving.env_gateway.request_limits import (
    HELD_BYTES,
    READ_BYTES,
    WINDOW_BYTES,
    WINDOW_READ_BYTES,
    Budget,
)
from tests.environments import HELLO
from tests.unit.serving.env_gateway.test_app import (
    Client,
    Scripted,
    agreeing,
    calling,
    gateway,
    opened,
    scripted,
    until,
)

LOST = {"type": "worker_lost"}
EVENTS = {"Content-Type": "text/event-stream"}
NOTIFICATION = {"jsonrpc": "2.0", "method": "notifications/progress"}


@asynccontextmanager
async def session_with(
    folder: Path, answer: Handler, **limits: Any
) -> AsyncIterator[tuple[Client, dict[str, str], Scripted]]:
    """A gateway with an open session, whose worker responds to all but its opening and its end by ``answer``."""

    async def respond(request: web.Request) -> web.StreamResponse:
        if request.method == "DELETE" or b'"initialize"' in await request.read():
            return await agreeing(request)
        return await answer(request)

    async with (
        scripted(folder, respond) as worker,
        gateway(worker.socket, limits=GatewayLimits(**limits)) as client,
    ):
        worker.report(ready=True)
        yield client, await opened(client.http, client.url), worker


def stream(
    length: int | None, *steps: bytes | Callable[[], Awaitable[object]], breaks_off: bool = False
) -> Handler:
    """A worker's response of these bytes, with what is to happen between them."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers=EVENTS)
        response.content_length = length
        await response.prepare(request)
        for step in steps:
            await (response.write(step) if isinstance(step, bytes) else step())
        if breaks_off:
            assert request.transport is not None
            request.transport.abort()
        return response

    return answer


async def lose(request: web.Request) -> web.StreamResponse:
    """A worker that is lost before it responds, but for the end of a session."""
    if request.method == "DELETE":
        return await agreeing(request)
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


# What passes


async def test_a_worker_gets_the_headers_of_mcp_and_no_token(tmp_path: Path) -> None:
    got: list[dict[str, str]] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        got.append(dict(request.headers))
        return web.Response(status=418, text="{}", content_type="text/plain")

    passed = {
        "Accept": "application/json",
        "Content-Type": "application/json",
        "Last-Event-ID": "7",
        "MCP-Protocol-Version": "2025-06-18",
        "Aworld-Check": "1",
        "MCP_SERVERS": "odd",
        "MCP-Servers": "other",
    }
    async with session_with(tmp_path, answer) as (client, session, _):
        headers = {**session, **passed, "Cookie": "secret", "X-Other": "secret"}
        async with client.http.post(client.url, data=b"{}", headers=headers) as response:
            assert (response.status, response.content_type) == (418, "text/plain")
            assert "Mcp-Session-Id" not in response.headers
    assert got[0].items() >= {**passed, **session}.items()
    assert not got[0].keys() & {"Authorization", "Cookie", "X-Other"}


async def test_a_refused_opening_names_no_session(tmp_path: Path) -> None:
    async def refuse(_: web.Request) -> web.StreamResponse:
        return web.json_response({"error": {}}, status=400)

    async with scripted(tmp_path, refuse) as worker, gateway(worker.socket) as (http, url, served):
        worker.report(ready=True)
        async with http.post(url, json=HELLO, headers={"Accept": "application/json"}) as response:
            assert (response.status, "Mcp-Session-Id" in response.headers) == (400, False)
        assert served.pool.sessions == {} and [method for method, _ in worker.requests] == ["POST", "DELETE"]


@pytest.mark.parametrize(
    ("length", "sent", "held"),
    [
        (None, HELD_BYTES, 0),
        (None, HELD_BYTES + 1, WINDOW_BYTES),
        (HELD_BYTES + 1, HELD_BYTES, WINDOW_BYTES),
        (HELD_BYTES, HELD_BYTES - 1, 0),
    ],
)
async def test_a_response_has_a_window_where_it_is_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, length: int | None, sent: int, held: int
) -> None:
    read_sizes: list[int] = []
    monkeypatch.setattr(proxy_request, "limit_reads", lambda _, size: read_sizes.append(size))
    proceed = asyncio.Event()
    parts = [b"x" * sent, b"y" * (1 if length is None else length - sent)]
    async with session_with(tmp_path, stream(length, parts[0], proceed.wait, parts[1])) as (
        client,
        session,
        _,
    ):
        asking = asyncio.create_task(client.http.get(client.url, headers=session))
        if length == HELD_BYTES:  # it is held as a whole
            proceed.set()
        async with await asking as response:
            assert response.content_length == length
            assert await response.content.readexactly(sent) == parts[0]
            assert client.gateway.budget.used == held
            (opened_session,) = client.gateway.pool.sessions.values()
            assert opened_session.requests == int(not proceed.is_set())
            opened_session.last_active = 0.0
            proceed.set()
            assert await response.read() == parts[1]
        assert await until(lambda: client.gateway.budget.used == opened_session.requests == 0)
        is_streamed = length != HELD_BYTES
        assert read_sizes == [READ_BYTES] * is_streamed + [WINDOW_READ_BYTES] * bool(held)
        assert bool(opened_session.last_active) is is_streamed and opened_session.vanished is None


async def test_a_long_response_has_one_window(tmp_path: Path) -> None:
    received, proceed = asyncio.Event(), asyncio.Event()
    answer = stream(None, b"x" * (HELD_BYTES + 1), received.wait, b"y", proceed.wait)
    async with (
        session_with(tmp_path, answer) as (client, session, _),
        client.http.get(client.url, headers=session) as response,
    ):
        await response.content.readexactly(HELD_BYTES + 1)
        received.set()
        assert await response.content.readexactly(1) == b"y"
        assert client.gateway.budget.used == WINDOW_BYTES
        proceed.set()


async def test_a_response_for_which_there_is_no_memory_is_broken_off(tmp_path: Path) -> None:
    answer = stream(None, b"x" * (HELD_BYTES + 1), asyncio.Event().wait)
    async with session_with(tmp_path, answer) as (client, session, _):
        client.gateway.budget = Budget(HELD_BYTES, HELD_BYTES, 0.01)
        async with client.http.get(client.url, headers=session) as response:
            with pytest.raises(aiohttp.ClientPayloadError):
                await response.read()
        (opened_session,) = client.gateway.pool.sessions.values()
        assert await until(lambda: opened_session.vanished is not None and not client.gateway.budget.used)


# A worker that is lost


async def test_a_request_whose_worker_is_lost_has_an_error_and_what_is_none_is_not_found(
    tmp_path: Path,
) -> None:
    async with session_with(tmp_path, lose) as (client, session, _):
        for message, status, number in ((calling("echo"), 200, 7), (NOTIFICATION, 404, None)):
            async with client.http.post(client.url, json=message, headers=session) as response:
                reply = await response.json()
            assert (response.status, reply["id"], reply["error"]["data"]) == (status, number, LOST)
            assert (reply["jsonrpc"], reply["error"]["code"]) == ("2.0", -32000)
        async with client.http.get(client.url, headers=session) as response:
            assert response.status == 404


@pytest.mark.parametrize(("message", "has_error"), [(calling("echo"), True), (NOTIFICATION, False)])
async def test_events_that_break_off_end_with_the_error_of_their_request(
    tmp_path: Path, message: dict[str, object], has_error: bool
) -> None:
    async with session_with(tmp_path, stream(None, b"data: 1\n\n", breaks_off=True)) as (client, session, _):
        async with client.http.post(client.url, json=message, headers=session) as response:
            first, *more = (await response.text()).removesuffix("\n\n").split("\n\n")
        assert (response.status, response.content_type, first) == (200, EVENTS["Content-Type"], "data: 1")
        assert [text.partition("\ndata: ")[0] for text in more] == ["event: message"] * has_error
        errors = [json.loads(text.partition("\ndata: ")[2]) for text in more]
        assert [(one["id"], one["error"]["data"]) for one in errors] == [(7, LOST)] * has_error


async def test_a_response_of_a_known_length_that_breaks_off_is_known_to_be_incomplete(tmp_path: Path) -> None:
    answer = stream(2 * HELD_BYTES, b"x" * HELD_BYTES, breaks_off=True)
    async with session_with(tmp_path, answer) as (client, session, _):
        body = b""
        with pytest.raises(aiohttp.ClientPayloadError):
            async with client.http.post(client.url, json=calling("echo"), headers=session) as response:
                async for chunk in response.content.iter_any():
                    body += chunk
        assert set(body) <= set(b"x")


async def test_a_short_response_is_passed_on_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    answer = stream(HELD_BYTES, b"x", breaks_off=True)
    async with (
        session_with(tmp_path, answer) as (client, session, _),
        client.http.post(client.url, json=calling("echo"), headers=session) as response,
    ):
        assert (response.status, (await response.json())["error"]["data"]) == (200, LOST)


async def test_an_opening_without_time_for_another_worker_tells_of_the_loss(tmp_path: Path) -> None:
    async with scripted(tmp_path, lose) as worker, gateway(worker.socket) as (http, url, served):
        served._limits = GatewayLimits(queue_seconds=0)
        worker.report(ready=True)
        assert await until(lambda: served.pool.links[0].ready)
        async with http.post(url, json=HELLO, headers={"Accept": "application/json"}) as response:
            assert response.status == 502


@pytest.mark.parametrize("fails", [lose, stream(None, b"data: 1\n\n", breaks_off=True)])
async def test_an_opening_whose_worker_is_lost_goes_to_the_next(tmp_path: Path, fails: Handler) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        return await (fails if len(worker.requests) == 1 else agreeing)(request)

    async with scripted(tmp_path, answer) as worker, gateway(worker.socket) as (http, url, served):
        worker.report(ready=True)
        opening = asyncio.create_task(opened(http, url))
        assert await until(lambda: len(worker.requests) == 2)
        worker.report(ready=True)
        assert (await opening)["Mcp-Session-Id"] in served.pool.sessions


# A client that is gone


@pytest.mark.parametrize("phase", ["before the response", "during the response"])
async def test_a_session_ends_a_while_after_its_client_broke_off(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, phase: str
) -> None:
    begun, waits = asyncio.Event(), asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        begun.set()
        if phase == "before the response":
            await waits.wait()
        more = (waits.wait,) if phase == "during the response" else ()
        return await stream(None, b"data: 1\n\n", *more)(request)

    async with session_with(tmp_path, answer, vanish_seconds=0.05) as (client, session, worker):
        asking = asyncio.create_task(client.http.get(client.url, headers=session))
        await begun.wait()
        if phase == "before the response":
            asking.cancel()
        else:
            (await asking).close()
        assert await until(lambda: not client.gateway.pool.sessions)
        assert b'ended_total{cause="vanished"} 1.0' in client.gateway.metrics.text()
        assert await until(lambda: ("DELETE", session["Mcp-Session-Id"]) in worker.requests)
    assert not caplog.records


async def test_a_client_that_comes_back_has_its_session(tmp_path: Path) -> None:
    begun = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.method == "POST":
            return await agreeing(request)
        begun.set()
        await asyncio.Event().wait()
        return web.Response()

    async with session_with(tmp_path, answer, vanish_seconds=600) as (client, session, _):
        asking = asyncio.create_task(client.http.get(client.url, headers=session))
        await begun.wait()
        asking.cancel()
        (opened_session,) = client.gateway.pool.sessions.values()
        assert await until(lambda: opened_session.vanished is not None)
        async with client.http.post(client.url, json=calling("echo"), headers=session) as response:
            assert response.status == 200
        assert (opened_session.vanished, opened_session.requests) == (None, 0)
