"""What passes between an agent and its environment, and what the agent gets where the environment gives nothing."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from aworld_train.rollout.loss_evidence import LostSession
from aworld_train.rollout.outcome import EnvironmentLost
from aworld_train.rollout.tool_answers import MAX_BYTES
from aworld_train.rollout.tool_gateway import ToolGateway, ToolGatewaySession, relay
from aworld_train.rollout.tool_selection import ToolSelection
from aworld_train.rollout.tools import ToolServer
from aworld_train.serving.mcp_messages import event

OPEN = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {}}
PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
CALL = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "t", "arguments": {}}}
NOTE = {"jsonrpc": "2.0", "method": "notifications/initialized"}
STREAM = "text/event-stream"
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class Agent:
    """Sends requests to a session."""

    session: ToolGatewaySession
    client: aiohttp.ClientSession

    async def send(self, message: Any = None, method: str = "POST", **headers: str) -> tuple[int, bytes, Any]:
        """The status, the body and the headers of an answer."""
        async with self.client.request(method, self.session.url, json=message, headers=headers) as response:
            return response.status, await response.read(), response.headers

    async def error(self, message: Any, **headers: str) -> Any:
        """The error that a request is answered with."""
        status, body, _ = await self.send(message, **headers)
        answer = json.loads(body)
        assert (status, answer["id"]) == (200, message["id"])
        return answer["error"]


@pytest.fixture
def evident_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whenever a session is checked, the environment is seen to be lost."""

    async def failure_of(lost: LostSession) -> EnvironmentLost:
        return EnvironmentLost(lost.reason)

    monkeypatch.setattr("aworld_train.rollout.tool_gateway.session.failure_of", failure_of)


@asynccontextmanager
async def relayed(handler: Handler, **options: Any) -> AsyncIterator[Agent]:
    """An agent at a gateway, before an environment that answers with ``handler``."""
    app = web.Application()
    app.router.add_route("*", "/mcp", handler)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    gateway = ToolGateway()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}/mcp"
    try:
        async with aiohttp.ClientSession() as client:
            yield Agent(await gateway.open_session(ToolServer(url, **{"headers": {}, **options})), client)
    finally:
        await gateway.stop()
        await runner.cleanup()


async def test_only_what_the_protocol_needs_of_headers_passes_either_way() -> None:
    arrived: dict[str, str] = {}
    back = {
        "Mcp-Session-Id": "one",
        "Cache-Control": "no-store",
        "Allow": "POST",
        "Content-Type": "text/x-own",
    }

    async def handler(request: web.Request) -> web.Response:
        arrived.update(request.headers)
        return web.Response(body=b"body", status=405, headers={**back, "Set-Cookie": "a=b", "X-Own": "1"})

    sent = {
        "Accept": STREAM,
        "Content-Type": "application/json; own",
        "Last-Event-ID": "5",
        "MCP-Protocol-Version": "2025-06-18",
        "Mcp-Session-Id": "known",
    }
    async with relayed(handler, headers={"X-Real": "key", "Accept": "all"}) as agent:
        agent.session.mcp_sessions.add("known")
        status, body, headers = await agent.send(PING, Cookie="a=b", **{"X-Own": "1"}, **sent)
        assert (status, body) == (405, b"body")
        assert agent.session.mcp_sessions == {"known"}  # only the answer to an opening makes one
        assert agent.session.tasks == set()
    assert sent | {"X-Real": "key", "Accept": "all"} == {name: arrived[name] for name in [*sent, "X-Real"]}
    assert not {"Cookie", "X-Own"} & arrived.keys()
    assert back == {name: headers[name] for name in back}
    assert not {"Set-Cookie", "X-Own"} & headers.keys()


@pytest.mark.parametrize(
    ("message", "status", "has_session", "lost"),
    [
        *((OPEN, status, False, lost) for status, lost in ((200, False), (399, False), (400, True))),
        *((PING, status, False, True) for status in (401, 403)),
        *((PING, status, False, False) for status in (400, 402, 404, 499)),
        (PING, 404, True, True),
        (None, 500, True, False),
    ],
)
async def test_which_statuses_mean_a_loss(message: Any, status: int, has_session: bool, lost: bool) -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.Response(body=b"{}", status=status)

    async with relayed(handler) as agent:
        agent.session.mcp_sessions.add("known")
        headers = {"Mcp-Session-Id": "known"} if has_session else {}
        own, body, _ = await agent.send(message, "POST" if message else "DELETE", **headers)
        if lost:
            assert (own, json.loads(body)["error"]["message"]) == (200, relay.LOST)
            assert f"HTTP {status}" in str(agent.session.lost)
        else:
            assert (own, body, agent.session.lost) == (status, b"{}", None)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b'{"error": {"message": "' + b"x" * 400 + b'"}}', "x" * 300),
        (b'{"error": "no"}', '{"error": "no"}'),
        (b"<p>\n  no\xff" + b"x" * 5000, "<p> no\ufffd" + "x" * 293),
        (b"", "Internal Server Error"),
    ],
)
async def test_an_error_quotes_the_beginning_of_a_refusal(body: bytes, reason: str) -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.Response(body=body, status=500)

    async with relayed(handler) as agent:
        assert (await agent.error(PING))["message"] == f"there is no result: HTTP 500: {reason}"
        assert agent.session.lost is None


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    ("outcome", "limits", "lost"),
    [
        (
            {"result": {"capabilities": {"experimental": {"aworld-train": {"tool_timeouts": {"a": 5}}}}}},
            {"a": 5.0},
            None,
        ),
        ({"error": {"message": "no room", "data": {"type": "busy"}}}, {}, "did not open a session: no room"),
        ({"error": {"data": {"type": "busy"}}}, {}, "did not open a session: it is busy"),
        ({"error": {"message": "no", "data": {"type": "other"}}}, {}, None),
    ],
)
async def test_an_opening_tells_how_long_calls_take_or_that_there_is_no_room(
    streamed: bool, outcome: Any, limits: Any, lost: str | None
) -> None:
    body = json.dumps({"jsonrpc": "2.0", "id": 0, **outcome}).encode()

    async def handler(request: web.Request) -> web.Response:
        response = (
            web.Response(body=event(body), content_type=STREAM) if streamed else web.Response(body=body)
        )
        response.headers["Mcp-Session-Id"] = "one"
        return response

    async with relayed(handler) as agent:
        await agent.send(PING)
        assert (agent.session.tool_timeouts, agent.session.lost) == ({}, None)
        assert (await agent.send(OPEN))[1] == (event(body) if streamed else body)
        assert agent.session.tool_timeouts == limits
        assert agent.session.mcp_sessions == {"one"}
        assert agent.session.lost is None if lost is None else str(agent.session.lost).endswith(lost)


@pytest.mark.parametrize(
    ("retry_after", "seconds"),
    [
        (None, 1.0),
        ("0", 1.0),
        ("2.5", 2.5),
        ("60", 5.0),
        ("Wed, 21 Oct 2026 07:28:00 GMT", 5.0),
        ("nan", 1.0),
    ],
)
def test_a_full_environment_says_when_it_is_asked_again_within_bounds(
    retry_after: str | None, seconds: float
) -> None:
    assert relay._busy_seconds(retry_after) == seconds


@pytest.mark.parametrize("status", [429, 503])
async def test_a_full_environment_is_asked_again(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    statuses, pauses = iter([status, status, 200]), []

    async def handler(request: web.Request) -> web.Response:
        return web.Response(status=next(statuses), headers={"Retry-After": "4"})

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    async with relayed(handler) as agent:
        monkeypatch.setattr(asyncio, "sleep", sleep)
        assert (await agent.send(OPEN))[0] == 200
        assert agent.session.lost is None
    assert [2 <= seconds <= 4 for seconds in pauses if seconds] == [
        True,
        True,
    ]  # aiohttp sleeps for 0 seconds


async def test_a_stream_of_the_servers_messages_may_outlast_calls_and_break_off() -> None:
    message = event(json.dumps(NOTE).encode())

    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": STREAM})
        await response.prepare(request)
        await asyncio.sleep(0.1)
        await response.write(message)
        assert request.transport is not None
        request.transport.abort()
        return response

    async with relayed(handler, call_timeout=0.01) as agent:
        status, body, _ = await agent.send(method="GET")
        assert (status, body, agent.session.lost) == (200, message, None)


@pytest.mark.parametrize(("message", "method"), [(None, "GET"), (NOTE, "POST")])
async def test_what_has_no_id_gets_no_answer_when_the_environment_is_lost(
    message: Any, method: str, evident_loss: None
) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    async with relayed(handler) as agent:
        for _ in range(2):
            status, body, _ = await agent.send(message, method)
            assert (status, body) == (404, b"")
        assert agent.session.lost is not None


async def test_a_request_without_an_answer_is_an_error_and_the_environment_is_not_lost() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError

    async with relayed(handler, call_timeout=0.05) as agent:
        error = await agent.error(PING)
        assert (error["message"], error["data"]) == (
            "Error: no answer within 0.05 seconds",
            {"type": "timeout"},
        )
        assert (agent.session.lost, agent.session.counts.calls) == (None, 0)


@pytest.mark.parametrize("hangs", [False, True])
async def test_a_call_without_an_answer_is_cancelled_even_if_that_has_no_answer_either(
    hangs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "_CANCEL_SECONDS", 0.05 if hangs else 60.0)
    received = []

    async def handler(request: web.Request) -> web.Response:
        received.append(message := await request.json())
        if hangs or message["method"] == "tools/call":
            await asyncio.Event().wait()
        return web.Response(status=202)

    async with relayed(handler, call_timeout=0.05) as agent:
        _, body, _ = await agent.send(CALL)
        result = json.loads(body)["result"]
        assert (result["isError"], result["_meta"]) == (True, {"aworld-train/type": "timeout"})
        (record,) = agent.session.counts.records
        assert (record.result, record.is_error) == ("Error: no answer within 0.05 seconds", True)
        assert (agent.session.lost, agent.session._pending) == (None, {})
    if not hangs:
        assert received[-1]["method"] == "notifications/cancelled"
        assert received[-1]["params"]["requestId"] == CALL["id"]
        assert "id" not in received[-1]


async def test_a_call_whose_environment_is_lost_has_failed_and_is_not_waited_for(evident_loss: None) -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.Response(status=500)

    async with relayed(handler) as agent:
        for _ in range(2):
            assert (await agent.error(CALL))["data"] == {"type": "environment_lost"}
        assert (agent.session.counts.calls, agent.session.counts.errors) == (2, 2)
        assert all(record.is_error for record in agent.session.counts.records)


async def test_an_error_of_the_system_is_checked_for_a_loss(
    monkeypatch: pytest.MonkeyPatch, evident_loss: None
) -> None:
    def fail(_: relay.CallRelay) -> None:
        raise OSError("no file is free")

    async def handler(request: web.Request) -> web.Response:
        raise AssertionError

    monkeypatch.setattr(relay.CallRelay, "_send", fail)
    async with relayed(handler) as agent:
        assert (await agent.error(PING))["data"] == {"type": "environment_lost"}
        assert str(agent.session.lost).endswith(": OSError: no file is free")


@pytest.mark.parametrize("closing", [False, True])
@pytest.mark.parametrize(("text", "reason"), [("one\ntwo", ": one"), ("", "")])
async def test_only_a_connection_to_the_environment_that_breaks_is_a_loss(
    closing: bool, text: str, reason: str, evident_loss: None
) -> None:
    class Transport(asyncio.Transport):
        def is_closing(self) -> bool:
            return closing

    async def handler(request: web.Request) -> web.Response:
        raise AssertionError

    async with relayed(handler) as agent:
        request = make_mocked_request("POST", "/", transport=Transport())
        call_relay = relay.CallRelay(agent.session, request, b"", NOTE, None)
        if closing:  # the agent is gone
            with pytest.raises(ConnectionResetError):
                await call_relay._handle_broken_connection(ConnectionResetError(text))
            assert agent.session.lost is None
        else:
            await call_relay._handle_broken_connection(ConnectionResetError(text))
            assert str(agent.session.lost).endswith(f": ConnectionResetError{reason}")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("body", "reason"),
    [(b" " * (MAX_BYTES + 1), "larger than 32 MB"), (b"[" * 5000 + b"]" * 5000, "nested more than 100 deep")],
    ids=["bytes", "depth"],
)
async def test_an_answer_beyond_the_limits_is_a_tool_error_for_the_agent(
    body: bytes, reason: str, stream: bool
) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        if stream:
            return web.Response(body=b"data: " + body + b"\n\n", content_type=STREAM)
        return web.Response(body=body, content_type="application/json")

    async with relayed(answer) as agent:
        _, sent, _ = await agent.send(CALL)
        result = json.loads(sent[sent.rindex(b'{"jsonrpc"') :])["result"]
        assert result["isError"]
        assert reason in result["content"][0]["text"]
        assert (agent.session.counts.errors, agent.session.lost) == (1, None)


LIST = {"jsonrpc": "2.0", "id": 3, "method": "tools/list"}
LISTED = {
    "tools": [{"name": name, "description": "One. Two.", "inputSchema": {}} for name in ("t", "hidden")],
    "nextCursor": "more",
}


@pytest.mark.parametrize("streamed", [False, True])
async def test_an_agent_sees_the_tools_of_its_selection_alone(streamed: bool) -> None:
    async def handler(request: web.Request) -> web.Response:
        progress = json.dumps({"jsonrpc": "2.0", "method": "notifications/progress"}).encode()
        answer = json.dumps({"jsonrpc": "2.0", "id": 3, "result": LISTED}).encode()
        if not streamed:
            return web.Response(body=answer, content_type="application/json")
        return web.Response(body=event(progress) + event(answer), content_type=STREAM)

    selection = ToolSelection(exclude=("hid*",), short_descriptions=True)
    async with relayed(handler, selection=selection) as agent:
        _, body, headers = await agent.send(LIST)
        assert headers["Content-Type"] == "application/json"
        result = json.loads(body)["result"]
        assert [(tool["name"], tool["description"]) for tool in result["tools"]] == [("t", "One.")]
        assert result["nextCursor"] == "more"


async def test_a_call_of_a_hidden_tool_does_not_reach_the_environment() -> None:
    arrived = []

    async def handler(request: web.Request) -> web.Response:
        arrived.append(await request.json())
        return web.json_response({"jsonrpc": "2.0", "id": 7, "result": {"content": []}})

    async with relayed(handler, selection=ToolSelection(include=("other",))) as agent:
        _, body, _ = await agent.send(CALL)
        assert json.loads(body)["result"]["content"][0]["text"] == "Error: Unknown tool: t"
        assert (agent.session.counts.calls, agent.session.counts.errors, arrived) == (1, 1, [])


@pytest.mark.parametrize(
    ("body", "message"),
    [(b"no json", "did not list its tools"), (b'{"error": {"code": 1, "message": "broken"}}', "broken")],
)
async def test_a_list_that_cannot_be_read_is_an_error(body: bytes, message: str) -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.Response(body=body, content_type="application/json")

    async with relayed(handler, selection=ToolSelection(include=("t",))) as agent:
        assert message in (await agent.error(LIST))["message"]
