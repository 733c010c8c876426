"""What a client gets while its session waits: events where it takes them, and the response as the last of these."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import ClientPayloadError, web
from aiohttp.test_utils import TestClient, TestServer

from aworld_train.serving.env_gateway import waiting
from aworld_train.serving.env_gateway.request_limits import Refusal
from aworld_train.serving.env_gateway.waiting import WaitingClient

STATES = {"ready": 0, "busy": 2, "cleaning": 1, "down": 0}
TEXT = "waiting for a free worker: 3 before you; workers: 2 busy, 1 cleaning"
Act = Callable[[WaitingClient], Awaitable[web.StreamResponse]]


async def response_to(
    act: Act, *, accept: str = "application/json, text/event-stream", **more: Any
) -> tuple[Any, str]:
    """What a client gets of a gateway that acts so."""

    async def handle(request: web.Request) -> web.StreamResponse:
        return await act(WaitingClient(request, await request.read(), {"Mcp-Session-Id": "one"}))

    app = web.Application()
    app.router.add_post("/", handle)
    async with (
        TestClient(TestServer(app)) as client,
        client.post("/", json={"id": 7, **more}, headers={"Accept": accept}) as response,
    ):
        return response, await response.text()


def events(text: str) -> list[Any]:
    *parts, end = text.split("\n\n")
    assert end == "" and all(part.startswith("event: message\ndata: ") for part in parts)
    return [json.loads(part.partition("data: ")[2]) for part in parts]


def log(text: str) -> dict[str, Any]:
    data = {"level": "info", "logger": "environment", "data": text}
    return {"jsonrpc": "2.0", "method": "notifications/message", "params": data}


@pytest.mark.parametrize("token", ["p", 0, None, 1.5, ["p"]])
async def test_a_wait_is_reported_as_events_and_as_progress_of_who_wants_that(
    monkeypatch: pytest.MonkeyPatch, token: Any
) -> None:
    now = 100.0
    monkeypatch.setattr(waiting, "time", SimpleNamespace(monotonic=lambda: now))

    async def act(client: WaitingClient) -> web.StreamResponse:
        nonlocal now
        assert not client.has_response
        now += 2.34
        await client.report(3, STATES)
        assert client.has_response
        await client.report(0, {"down": 0})
        return await client.answer(web.json_response({"id": 7, "result": {}}))

    response, text = await response_to(act, params={"_meta": {"progressToken": token}})
    assert (response.status, response.content_type) == (200, "text/event-stream")
    assert (response.headers["Mcp-Session-Id"], response.headers["Cache-Control"]) == ("one", "no-cache")
    expected: list[Any] = []
    for line in (TEXT, "waiting for a free worker: 0 before you; workers: none"):
        expected.append(log(line))
        if isinstance(token, str | int):
            progress = {"progressToken": token, "progress": 2.3, "message": line}
            expected.append({"jsonrpc": "2.0", "method": "notifications/progress", "params": progress})
    assert events(text) == [*expected, {"id": 7, "result": {}}]


@pytest.mark.parametrize("params", [{}, {"_meta": None}, {"_meta": {}}, None, [1]])
async def test_a_request_without_a_progress_token_gets_messages_alone(params: Any) -> None:
    async def act(client: WaitingClient) -> web.StreamResponse:
        await client.report(3, STATES)
        return await client.answer(web.json_response({}))

    assert events((await response_to(act, params=params))[1]) == [log(TEXT), {}]


async def test_who_takes_no_events_gets_the_response_as_it_is() -> None:
    async def act(client: WaitingClient) -> web.StreamResponse:
        await client.report(3, STATES)
        assert not client.has_response
        response = Refusal(503, "busy", "no worker").response()
        assert await client.answer(response, "busy") is response
        return response

    response, text = await response_to(act, accept="application/json")
    assert (response.status, json.loads(text)["error"]["message"]) == (503, "no worker")


async def test_a_response_that_is_an_event_already_stays_as_it_is() -> None:
    async def act(client: WaitingClient) -> web.StreamResponse:
        await client.report(3, STATES)
        return await client.answer(web.Response(body=b"data: {}\n\n", content_type="text/event-stream"))

    assert (await response_to(act))[1].split("\n\n", 1)[1] == "data: {}\n\n"


@pytest.mark.parametrize(("data", "kind"), [({}, "busy"), ({"data": {"type": "own"}}, "own")])
async def test_a_refusal_is_the_error_of_the_request_that_waits(data: dict[str, Any], kind: str) -> None:
    async def act(client: WaitingClient) -> web.StreamResponse:
        await client.report(3, STATES)
        return await client.answer(
            web.json_response({"id": None, "error": {"code": -1, "message": "no", **data}}), "busy"
        )

    error = {"code": -1, "message": "no", "data": {"type": kind}}
    assert events((await response_to(act))[1])[-1] == {"id": 7, "error": error}


async def test_a_client_that_takes_nothing_loses_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    async def write(*_: object) -> None:
        await asyncio.Event().wait()

    async def act(client: WaitingClient) -> web.StreamResponse:
        monkeypatch.setattr(waiting, "_WRITE_SECONDS", 0.01)
        monkeypatch.setattr(web.StreamResponse, "write", write)
        with pytest.raises(ConnectionResetError, match="the client does not take its response"):
            await client.report(3, STATES)
        transport = client.request.transport
        seen.append(transport is None or transport.is_closing())
        raise ConnectionResetError

    seen: list[bool] = []
    with pytest.raises(ClientPayloadError):
        await response_to(act)
    assert seen == [True]
