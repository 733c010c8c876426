"""MCP servers other than the environment gateway: event streams, interruptions, requests to the client, redirects."""

import asyncio
import gc
import gzip
import json
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web

from aworld_train.rollout.mcp_client import _MAX_RESUMPTIONS
from aworld_train.rollout.outcome import EnvironmentLost
from aworld_train.rollout.tool_answers import MAX_BYTES, MAX_VALUES
from aworld_train.rollout.tools import ToolServer, ToolSession

RESULT = {"content": [{"type": "text", "text": "done"}]}
Answer = Callable[[web.Request, Any], Awaitable[web.StreamResponse]]


def answer_to(number: Any, result: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "result": result}


def event(message: dict[str, Any], number: str = "") -> bytes:
    named = f"id: {number}\r\n" if number else ""
    return f": a comment\r\n{named}event: message\r\ndata: {json.dumps(message)}\r\n\r\n".encode()


async def events(request: web.Request, *pieces: bytes) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for piece in pieces:
        await response.write(piece)
        await asyncio.sleep(0)
    return response


@asynccontextmanager
async def served(
    on_call: Answer, on_get: Answer | None = None, path: str = "/mcp", hangs: bool = False
) -> AsyncIterator[tuple[ToolServer, list[Any]]]:
    """A server that opens sessions and answers calls with ``on_call``, and all messages that it received."""
    received: list[Any] = []

    async def mcp(request: web.Request) -> web.StreamResponse:
        if request.method != "POST":
            received.append(request.method)
            return await on_get(request, None) if on_get and request.method == "GET" else web.Response()
        received.append(message := await request.json())
        if message.get("method") == "initialize":
            opened = answer_to(message["id"], {"protocolVersion": "2025-03-26", "capabilities": {}})
            return web.json_response(opened, headers={"Mcp-Session-Id": "one"})
        assert request.headers["Mcp-Session-Id"] == "one"
        assert request.headers["MCP-Protocol-Version"] == "2025-03-26"
        if message.get("method") == "tools/call":
            return await on_call(request, message)
        if message.get("method") == "notifications/initialized" and hangs:
            await asyncio.sleep(60)
        return web.Response(status=202)

    async def redirect(request: web.Request) -> web.Response:
        return web.Response(status=307, headers={"Location": "/mcp"})

    app = web.Application()
    app.router.add_route("*", "/mcp", mcp)
    app.router.add_route("*", "/old", redirect)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield ToolServer(f"http://127.0.0.1:{runner.addresses[0][1]}{path}", {}, 10, 10), received
    finally:
        await runner.cleanup()


async def test_an_answer_may_come_as_events_among_others_in_any_pieces() -> None:
    async def on_call(request: web.Request, message: Any) -> web.StreamResponse:
        ping = {"jsonrpc": "2.0", "id": "p", "method": "ping"}
        wish = {"jsonrpc": "2.0", "id": "w", "method": "sampling/createMessage", "params": {}}
        note = {"jsonrpc": "2.0", "method": "notifications/message", "params": {}}
        others = answer_to("another", {"content": []})
        body = b"".join(event(one) for one in (note, ping, wish, others, answer_to(message["id"], RESULT)))
        return await events(request, *(body[place : place + 7] for place in range(0, len(body), 7)))

    async with served(on_call) as (server, received), ToolSession(server) as tools:
        assert (await tools.call("any", {})).text == "done"
        answered = {message["id"]: message for message in received if "method" not in message}
        assert answered["p"]["result"] == {}
        assert answered["w"]["error"]["code"] == -32601


@pytest.mark.parametrize("interruptions", [1, 2, _MAX_RESUMPTIONS, _MAX_RESUMPTIONS + 1])
async def test_an_answer_that_the_server_interrupts_goes_on_where_it_stopped(
    monkeypatch: pytest.MonkeyPatch, interruptions: int
) -> None:
    monkeypatch.setattr("aworld_train.rollout.mcp_client._RESUME_SECONDS", 0.01)
    numbers, last_ids = [], []

    async def on_call(request: web.Request, message: Any) -> web.StreamResponse:
        numbers.append(message["id"])
        return await events(request, b"id: first\ndata:\n\n")

    async def on_get(request: web.Request, _: Any) -> web.StreamResponse:
        last_ids.append(request.headers["Last-Event-ID"])
        if len(last_ids) < interruptions:
            return await events(request, b"id: second\ndata:\n\n")
        return await events(request, event(answer_to(numbers[-1], RESULT), "third"))

    async with served(on_call, on_get) as (server, _), ToolSession(server) as tools:
        if interruptions > _MAX_RESUMPTIONS:
            assert "ended before it was complete" in (await tools.call("any", {})).text
        else:
            assert (await tools.call("any", {})).text == "done"
    assert last_ids == ["first", *["second"] * (_MAX_RESUMPTIONS - 1)][:interruptions]


async def test_an_answer_that_ends_before_it_is_complete_is_an_error_result() -> None:
    async def on_call(request: web.Request, message: Any) -> web.StreamResponse:
        return await events(request, b": nothing\n\n")

    async with served(on_call) as (server, received), ToolSession(server) as tools:
        assert "ended before it was complete" in (await tools.call("any", {})).text
        assert "GET" not in received  # it has no number from which it could go on


@pytest.mark.parametrize("body", [b"[]", b"{", b'{"jsonrpc": "2.0", "id": 1}', b'{"id": 1, "error": "boom"}'])
async def test_what_is_no_tool_result_is_an_error_result(body: bytes) -> None:
    async def on_call(request: web.Request, message: Any) -> web.StreamResponse:
        return web.Response(body=body, content_type="application/json")

    async with served(on_call) as (server, _), ToolSession(server) as tools:
        assert (await tools.call("any", {})).is_error


def deep(levels: int) -> bytes:
    deepest = b"[" * levels + b"]" * levels
    return b'{"jsonrpc": "2.0", "id": 1, "result": {"content": [], "structuredContent": %s}}' % deepest


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b" " * (MAX_BYTES + 1), "larger than 32 MB"),
        (b'{"id": 1, "result": {"content": [' + b"[]," * MAX_VALUES + b"1]}}", "more than 2,097,152 values"),
        (deep(200), "nested more than 100 deep"),
        (deep(100_000), "nested more than 100 deep"),
    ],
    ids=["bytes", "values", "deep", "too deep to parse"],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_beyond_the_limits_is_an_error_result_and_the_session_goes_on(
    body: bytes, reason: str, stream: bool
) -> None:
    bodies = [body]

    async def on_call(request: web.Request, message: Any) -> web.StreamResponse:
        if not bodies:
            return web.json_response(answer_to(message["id"], RESULT))
        sent = bodies.pop()
        if stream:
            return await events(request, b"data: " + sent + b"\n\n")
        return web.Response(body=sent, content_type="application/json")

    async with served(on_call) as (server, _), ToolSession(server) as tools:
        result = await tools.call("any", {})
        assert result.is_error
        assert reason in result.text
        assert (await tools.call("any", {})).text == "done"


async def test_a_bomb_costs_no_more_memory_than_an_answer_may_have() -> None:
    bomb = gzip.compress(b" " * MAX_BYTES) * 20

    async def on_call(request: web.Request, message: Any) -> web.StreamResponse:
        return web.Response(body=bomb, headers={"Content-Encoding": "gzip"})

    async with served(on_call) as (server, _), ToolSession(server) as tools:
        tracemalloc.start()
        result = await tools.call("any", {})
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert "larger than 32 MB" in result.text
        assert peak < 3 * MAX_BYTES


async def test_half_of_a_surrogate_pair_in_a_result_is_replaced() -> None:
    async def on_call(request: web.Request, message: Any) -> web.StreamResponse:
        result = {"content": [{"type": "text", "text": "cut \ud83d, whole \ud83d\ude00"}]}
        return web.json_response(answer_to(message["id"], result))

    async with served(on_call) as (server, _), ToolSession(server) as tools:
        result = await tools.call("any", {})
    assert result.text == "cut \N{REPLACEMENT CHARACTER}, whole \N{GRINNING FACE}"
    assert json.dumps(result.raw, ensure_ascii=False).encode()


async def test_a_redirect_within_the_server_is_followed_and_a_session_is_four_requests() -> None:
    async def on_call(request: web.Request, message: Any) -> web.StreamResponse:
        return web.json_response(answer_to(message["id"], RESULT))

    async with served(on_call, path="/old") as (server, received):
        async with ToolSession(server) as tools:
            assert (await tools.call("any", {})).text == "done"
        methods = [message if isinstance(message, str) else message["method"] for message in received]
        assert methods == ["initialize", "notifications/initialized", "tools/call", "DELETE"]


async def test_a_session_that_is_half_open_when_time_is_up_is_closed() -> None:
    async def on_call(request: web.Request, message: Any) -> web.StreamResponse:
        raise AssertionError("it was not opened")

    async with served(on_call, hangs=True) as (server, received):
        async with ToolSession(replace(server, connect_timeout=3.0)) as tools:
            with pytest.raises(EnvironmentLost, match=r"did not open a session within 3 seconds"):
                await tools.call("any", {})
        assert received[-1] == "DELETE"


async def test_a_redirect_to_another_server_is_not_followed() -> None:
    async def redirect(request: web.Request, message: Any) -> web.StreamResponse:
        return web.Response(status=307, headers={"Location": "http://127.0.0.2:1/mcp"})

    async with served(redirect) as (server, _), ToolSession(server) as tools:
        assert "HTTP 307" in (await tools.call("any", {})).text


def test_an_event_loop_that_ends_closes_its_connections(caplog: pytest.LogCaptureFixture) -> None:
    async def on_call(request: web.Request, message: Any) -> web.StreamResponse:
        return web.json_response(answer_to(message["id"], RESULT))

    async def main() -> None:
        async with served(on_call) as (server, _), ToolSession(server) as tools:
            assert (await tools.call("any", {})).text == "done"

    for _ in range(2):
        asyncio.run(main())
        gc.collect()
    assert "Unclosed" not in caplog.text
