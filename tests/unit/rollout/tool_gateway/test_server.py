"""What an agent and its episode get at the tool gateway: the official SDK before it, real servers behind it."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from mcp import ClientSession, McpError
from mcp.types import CallToolResult

from aworld_train.episode.outcome import Outcome
from aworld_train.errors import CassetteError
from aworld_train.rollout.cassette import Cassette, Mode, RecordedTools
from aworld_train.rollout.outcome import EnvironmentLost
from aworld_train.rollout.tool_answers import EventReader
from aworld_train.rollout.tool_gateway import ToolGateway, ToolGatewaySession, tool_gateway
from aworld_train.rollout.tools import ToolServer
from aworld_train.serving.mcp_messages import event
from tests.environments import eventually
from tests.proxies import Proxy
from tests.tool_servers import JSON_CALCULATOR, SOON, STREAMING_ODD, TOKEN, WITHIN, ServerProcess, agent

# The function that every supported release of the MCP SDK has is deprecated in the latest ones.
pytestmark = pytest.mark.filterwarnings("ignore:Use `streamable_http_client`:DeprecationWarning")

HEADERS = {"Accept": "application/json, text/event-stream"}
NOWHERE = ToolServer("http://127.0.0.1:1/mcp", {}, connect_timeout=60)


@pytest.fixture(scope="module")
def odd() -> Iterator[ServerProcess]:
    server = ServerProcess(STREAMING_ODD)
    yield server
    server.kill()


@pytest.fixture(scope="module")
def calculator() -> Iterator[ServerProcess]:
    server = ServerProcess(JSON_CALCULATOR)
    yield server
    server.kill()


@pytest.fixture(params=[JSON_CALCULATOR, STREAMING_ODD], ids=["JSON", "event streams"])
def mortal(request: pytest.FixtureRequest) -> Iterator[ServerProcess]:
    """A server for one test, which may kill it."""
    server = ServerProcess(request.param)
    yield server
    server.kill()


@pytest.fixture
async def gateway() -> AsyncIterator[ToolGateway]:
    one = ToolGateway()
    yield one
    await one.stop()


def text_of(result: CallToolResult) -> str:
    return str(result.content[0].text)  # type: ignore[union-attr]


async def were_cancelled(session: ClientSession) -> list[float]:
    structured = (await session.call_tool("were_cancelled", {})).structuredContent
    assert structured is not None
    return list(structured["result"])


async def refused(gateway_session: ToolGatewaySession) -> str:
    """The error that an agent ends with which cannot open a session."""
    try:
        async with agent(gateway_session.url):
            return ""
    except Exception as error:  # in a group or not, by release of the SDK
        leaf: BaseException = error
        while isinstance(leaf, BaseExceptionGroup):
            leaf = leaf.exceptions[0]
        return str(leaf)


async def post(client: aiohttp.ClientSession, url: str, message: Any, **headers: str) -> tuple[int, Any]:
    async with client.post(url, json=message, headers={**HEADERS, **headers}) as answer:
        body = await answer.read()
        return answer.status, json.loads(body) if body else None


# Passing through


async def test_an_agent_that_knows_only_its_url_has_the_tools_and_its_calls_are_counted(
    gateway: ToolGateway, calculator: ServerProcess
) -> None:
    gateway_session = await gateway.open_session(calculator.tools())
    assert TOKEN not in gateway_session.url
    async with agent(gateway_session.url) as session:
        assert [tool.name for tool in (await session.list_tools()).tools] == ["calculator"]
        assert text_of(await session.call_tool("calculator", {"expression": "6*7"})) == "42"
        failed = await session.call_tool("calculator", {"expression": "1/0"})
        assert failed.isError and text_of(failed) == "Error: division by zero"
    await gateway_session.close()
    assert (gateway_session.counts.calls, gateway_session.counts.errors) == (2, 1)
    assert 0 < gateway_session.counts.seconds < WITHIN
    assert gateway_session.lost is None


async def test_everything_passes_through_an_event_stream_unchanged(
    gateway: ToolGateway, odd: ServerProcess
) -> None:
    async def ask(session: ClientSession) -> list[Any]:
        calls = [("many_kinds", {}), ("structured", {"x": 1}), ("fails", {"how": "so"}), ("nothing", {})]
        answers = [await session.call_tool(name, arguments) for name, arguments in calls]
        return [(await session.list_tools()).model_dump(), *(answer.model_dump() for answer in answers)]

    gateway_session = await gateway.open_session(odd.tools())
    async with agent(odd.url) as direct, agent(gateway_session.url) as through:
        assert await ask(through) == await ask(direct)
    assert (gateway_session.counts.calls, gateway_session.counts.errors) == (4, 2)


async def test_progress_arrives_while_the_call_is_under_way(gateway: ToolGateway, odd: ServerProcess) -> None:
    seen: list[tuple[float, float]] = []
    began = time.monotonic()

    async def note(progress: float, total: float | None, message: str | None) -> None:
        seen.append((progress, time.monotonic() - began))

    gateway_session = await gateway.open_session(odd.tools())
    async with agent(gateway_session.url) as session:
        result = await session.call_tool("wait", {"seconds": 1.0}, progress_callback=note)
    assert text_of(result) == "waited"
    assert [progress for progress, _ in seen] == list(range(5))
    assert seen[1][1] < seen[4][1] - 0.4


async def test_a_call_that_the_agent_cancels_is_cancelled_in_the_environment(
    gateway: ToolGateway, odd: ServerProcess
) -> None:
    gateway_session = await gateway.open_session(odd.tools())
    async with agent(gateway_session.url) as session:
        number = session._request_id
        call = asyncio.create_task(session.call_tool("wait", {"seconds": 31}))
        await asyncio.sleep(0.3)
        from mcp.types import CancelledNotification, CancelledNotificationParams, ClientNotification

        params = CancelledNotificationParams(requestId=number)
        await session.send_notification(
            ClientNotification(CancelledNotification(method="notifications/cancelled", params=params))
        )
        with pytest.raises(McpError, match="cancelled"):
            await call
        assert 31.0 in await were_cancelled(session)
    assert (gateway_session.counts.calls, gateway_session.counts.errors) == (2, 1)
    assert gateway_session.lost is None


async def test_the_environment_gets_the_gateway_session_s_headers_and_none_of_the_agent_s_own(
    gateway: ToolGateway, odd: ServerProcess
) -> None:
    gateway_session = await gateway.open_session(odd.tools(MCP_SERVERS="a,b"))
    agent_headers = {
        "Authorization": f"Bearer {gateway_session.token}",
        "MCP_SERVERS": "all",
        "X-Own": "1",
        "Cookie": "a=b",
    }
    from mcp.client.streamable_http import streamablehttp_client

    async with (
        streamablehttp_client(gateway_session.url, headers=agent_headers) as (read, write, _),
        ClientSession(read, write) as session,
    ):
        await session.initialize()
        arrived = (await session.call_tool("headers", {})).structuredContent
    assert arrived is not None
    assert arrived["authorization"] == f"Bearer {TOKEN}"
    assert arrived["mcp_servers"] == "a,b"
    assert not {"x-own", "cookie"} & arrived.keys()


async def test_only_who_has_the_key_comes_in_and_only_to_its_own_sessions(
    gateway: ToolGateway, calculator: ServerProcess
) -> None:
    first, other = [await gateway.open_session(calculator.tools()) for _ in range(2)]
    assert first.url != other.url
    hello = {
        "jsonrpc": "2.0",
        "id": 0,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "t", "version": "1"},
        },
    }
    async with aiohttp.ClientSession() as client:
        assert (await post(client, first.url.replace(first.token, "guess"), hello))[0] == 404
        assert (await post(client, first.url, hello, Authorization="Bearer guess"))[0] == 401
        async with client.post(first.url, json=hello, headers=HEADERS) as opened:
            session = opened.headers["Mcp-Session-Id"]
        ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        assert (await post(client, first.url, ping, **{"Mcp-Session-Id": session}))[0] == 200
        assert (await post(client, other.url, ping, **{"Mcp-Session-Id": session}))[0] == 404
        assert other.lost is None
        await first.close()
        assert (await post(client, first.url, ping, **{"Mcp-Session-Id": session}))[0] == 404


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"5", b"[" * 100_000], ids=str)
async def test_what_is_no_message_is_refused(
    gateway: ToolGateway, calculator: ServerProcess, body: bytes
) -> None:
    gateway_session = await gateway.open_session(calculator.tools())
    async with aiohttp.ClientSession() as client, client.post(gateway_session.url, data=body) as answer:
        assert answer.status == 400
        assert (await answer.json())["error"]["code"] == -32600
    assert gateway_session.lost is None


# Limits and ends


async def test_a_tool_that_takes_too_long_is_an_error_result_and_is_cancelled(
    gateway: ToolGateway, odd: ServerProcess
) -> None:
    gateway_session = await gateway.open_session(odd.tools(call=1.0))
    async with agent(gateway_session.url) as session:
        result = await session.call_tool("wait", {"seconds": 32})
        assert result.isError and text_of(result) == "Error: no answer within 1 seconds"
        assert 32.0 in await were_cancelled(session)
    assert (gateway_session.counts.calls, gateway_session.counts.errors) == (2, 1)
    assert gateway_session.lost is None


async def test_closing_ends_what_is_under_way_and_the_sessions_of_an_agent_that_did_not(
    gateway: ToolGateway, odd: ServerProcess
) -> None:
    gateway_session = await gateway.open_session(odd.tools())

    async def stubborn() -> None:
        async with agent(gateway_session.url) as session:
            await session.call_tool("wait", {"seconds": 600})

    episode = asyncio.create_task(stubborn())
    assert await asyncio.to_thread(eventually, lambda: gateway_session.counts.calls)
    (session,) = gateway_session.mcp_sessions
    began = time.monotonic()
    await gateway_session.close()
    await gateway_session.close()
    assert time.monotonic() - began < SOON
    async with aiohttp.ClientSession() as client:
        ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        status, _ = await post(client, odd.url, ping, **{"Mcp-Session-Id": session})
    assert status == 404
    assert (gateway_session.counts.calls, gateway_session.counts.errors, gateway_session.lost) == (1, 1, None)
    episode.cancel()
    await asyncio.wait({episode}, timeout=SOON)
    assert episode.done()


async def test_thirty_two_episodes_at_once_each_get_their_own_answers(
    gateway: ToolGateway, odd: ServerProcess
) -> None:
    async def episode(number: int) -> ToolGatewaySession:
        gateway_session = await gateway.open_session(odd.tools())
        async with agent(gateway_session.url) as session:
            for step in range(4):
                text = text_of(await session.call_tool("echo", {"value": [number, step]}))
                assert text == repr([number, step])
            assert text_of(await session.call_tool("count", {})) == "1"
        await gateway_session.close()
        return gateway_session

    async with asyncio.timeout(WITHIN):
        gateway_sessions = await asyncio.gather(*map(episode, range(32)))
    assert [gateway_session.counts.calls for gateway_session in gateway_sessions] == [5] * 32
    assert not any(
        gateway_session.lost or gateway_session.counts.errors for gateway_session in gateway_sessions
    )
    assert gateway._sessions == {}


async def test_no_call_waits_for_the_connection_of_another(gateway: ToolGateway) -> None:
    all_there = asyncio.Barrier(101)  # one more than clients have connections by default

    async def handler(request: web.Request) -> web.Response:
        await all_there.wait()
        return web.json_response(RESULT)

    runner, url = await scripted(handler)
    gateway_session = await gateway.open_session(ToolServer(url, {}, call_timeout=60))
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as client:
        sent = [
            post(client, gateway_session.url, {**CALL, "id": number}) for number in range(all_there.parties)
        ]
        answers = await asyncio.gather(*sent)
    assert all(answer == (200, RESULT) for answer in answers)
    await runner.cleanup()


async def test_a_process_has_one_gateway_which_starts_with_its_first_use() -> None:
    one, other = await asyncio.gather(tool_gateway(), tool_gateway())
    assert one is other
    await one.stop()


# Loss


async def lost_call(session: ClientSession, tool: str = "echo") -> dict[str, Any]:
    """The data of the error that a call ends with."""
    with pytest.raises(McpError) as caught:
        await session.call_tool(tool, {"value": 1, "expression": "1"})
    data: dict[str, Any] = caught.value.error.data
    return data


async def test_a_server_that_is_not_there_is_a_lost_environment_at_once(gateway: ToolGateway) -> None:
    gateway_session = await gateway.open_session(NOWHERE)
    began = time.monotonic()
    assert "tool environment was lost" in await refused(gateway_session)
    assert isinstance(gateway_session.lost, EnvironmentLost)
    assert gateway_session.lost.outcome is Outcome.environment
    assert "127.0.0.1:1" in str(gateway_session.lost)
    assert time.monotonic() - began < SOON


async def test_a_far_environment_is_reached_through_the_proxy_and_a_near_one_is_not(
    gateway: ToolGateway, calculator: ServerProcess
) -> None:
    result = {"jsonrpc": "2.0", "id": 7, "result": {"content": []}}
    with Proxy(body=result) as proxy, proxy.variables("all"):
        far = await gateway.open_session(ToolServer("http://tools.invalid/mcp", {}))
        async with (
            aiohttp.ClientSession() as client,
            client.post(far.url, json=CALL, headers=HEADERS) as answer,
        ):
            assert await answer.json() == result
        near = await gateway.open_session(ToolServer(calculator.url, {}))
        async with aiohttp.ClientSession() as client:
            await post(client, near.url, CALL)
        assert "HTTP 401" in str(near.lost)  # the calculator's own answer
        await near.close()
        await far.close()
    assert proxy.requests == [("POST", "tools.invalid")]


async def test_a_proxy_that_refuses_is_a_lost_environment_without_its_password(gateway: ToolGateway) -> None:
    with Proxy(status=407) as proxy, proxy.variables("https"):
        gateway_session = await gateway.open_session(ToolServer("https://tools.invalid/mcp", {}))
        assert "tool environment was lost" in await refused(gateway_session)
    assert "407" in str(gateway_session.lost)
    assert "sesame" not in str(gateway_session.lost)


async def test_a_wrong_token_is_a_lost_environment_that_says_why(
    gateway: ToolGateway, calculator: ServerProcess
) -> None:
    gateway_session = await gateway.open_session(
        ToolServer(calculator.url, {"Authorization": "Bearer wrong"})
    )
    assert "tool environment was lost" in await refused(gateway_session)
    assert "HTTP 401" in str(gateway_session.lost)


async def test_a_server_killed_between_two_calls_is_lost_and_the_agent_is_told_so(
    gateway: ToolGateway, mortal: ServerProcess
) -> None:
    gateway_session = await gateway.open_session(mortal.tools())
    async with agent(gateway_session.url) as session:
        await session.list_tools()
        mortal.kill()
        began = time.monotonic()
        for _ in range(3):
            assert await lost_call(session) == {"type": "environment_lost"}
        assert time.monotonic() - began < SOON
    await gateway_session.close()
    assert isinstance(gateway_session.lost, EnvironmentLost)
    assert (gateway_session.counts.calls, gateway_session.counts.errors) == (3, 3)


async def test_a_server_that_dies_during_a_call_is_lost(gateway: ToolGateway) -> None:
    server = ServerProcess(STREAMING_ODD)
    try:
        gateway_session = await gateway.open_session(server.tools())
        async with agent(gateway_session.url) as session:
            began = time.monotonic()
            assert await lost_call(session, "crash") == {"type": "environment_lost"}
            assert time.monotonic() - began < SOON
        assert gateway_session.lost is not None
    finally:
        server.kill()


async def test_a_session_that_the_environment_forgot_is_lost(
    gateway: ToolGateway, mortal: ServerProcess
) -> None:
    gateway_session = await gateway.open_session(mortal.tools())
    async with agent(gateway_session.url) as session:
        port = mortal.port
        mortal.kill()
        mortal.start(port)
        assert await lost_call(session) == {"type": "environment_lost"}
    assert "HTTP 404" in str(gateway_session.lost)


async def test_a_server_that_hangs_at_the_door_is_lost_after_the_limit(
    gateway: ToolGateway, mortal: ServerProcess
) -> None:
    gateway_session = await gateway.open_session(mortal.tools(connect=1.0))
    mortal.freeze()
    began = time.monotonic()
    try:
        assert "tool environment was lost" in await refused(gateway_session)
    finally:
        mortal.thaw()
    assert 0.9 < time.monotonic() - began < SOON
    assert "did not open a session within 1 seconds" in str(gateway_session.lost)


def scripted(handler: Any, **options: Any) -> Any:
    """A server that answers as ``handler`` says, for what no real one can be brought to do on time."""

    async def start() -> tuple[web.AppRunner, str]:
        app = web.Application()
        app.router.add_route("*", "/mcp", handler)
        runner = web.AppRunner(app, shutdown_timeout=1, **options)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return runner, f"http://127.0.0.1:{runner.addresses[0][1]}/mcp"

    return start()


CALL = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "t", "arguments": {}}}
RESULT = {"jsonrpc": "2.0", "id": 7, "result": {"content": [{"type": "text", "text": "done"}]}}


@pytest.mark.parametrize(
    ("status", "message", "reason"),
    [
        (200, {"error": {"code": -32000, "message": "gone", "data": {"type": "worker_lost"}}}, None),
        (200, {"error": {"code": -32602, "message": "no such tool", "data": {"type": "unknown_tool"}}}, None),
        (500, {"error": {"code": -32603, "message": "oh no"}}, "HTTP 500: oh no"),
        (502, None, "HTTP 502: Bad Gateway"),
        (401, None, "HTTP 401: Unauthorized"),
        (400, {"error": {"code": -32600, "message": "bad"}}, None),
    ],
)
@pytest.mark.parametrize("streamed", [False, True])
async def test_which_answers_mean_a_loss(
    gateway: ToolGateway, status: int, message: Any, reason: str | None, streamed: bool
) -> None:
    body = json.dumps({"jsonrpc": "2.0", "id": 7, **message}).encode() if message else b""

    async def handler(request: web.Request) -> web.Response:
        if streamed:
            return web.Response(body=event(body), status=status, content_type="text/event-stream")
        return web.Response(body=body, status=status, content_type="application/json")

    runner, url = await scripted(handler)
    gateway_session = await gateway.open_session(ToolServer(url, {}))
    async with (
        aiohttp.ClientSession() as client,
        client.post(gateway_session.url, json=CALL, headers=HEADERS) as answer,
    ):
        received = await answer.read()
    if reason is None:
        assert (answer.status, received) == (status, event(body) if streamed else body)
    elif status == 401 and not streamed:
        assert json.loads(received)["error"]["data"] == {"type": "environment_lost"}
        assert str(gateway_session.lost).endswith(reason)
    elif not streamed:
        (part,) = json.loads(received)["result"]["content"]
        assert part["text"] == f"Error: there is no result: {reason}"
    assert (gateway_session.lost is not None) is (status == 401)
    assert gateway_session.counts.calls == 1
    await gateway_session.close()
    await runner.cleanup()


@pytest.mark.parametrize("end", ["breaks off", "ends"])
async def test_an_answer_that_stops_half_way_is_an_error_said_in_the_stream_that_was_begun(
    gateway: ToolGateway, end: str
) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(event(b'{"jsonrpc": "2.0", "method": "notifications/message", "params": {}}'))
        if end == "breaks off":
            assert request.transport is not None
            request.transport.abort()
        return response

    runner, url = await scripted(handler)
    gateway_session = await gateway.open_session(ToolServer(url, {}))
    async with (
        aiohttp.ClientSession() as client,
        client.post(gateway_session.url, json=CALL, headers=HEADERS) as answer,
    ):
        *_, last = EventReader().feed(await answer.read())
    assert json.loads(last)["result"]["_meta"] == {"aworld-train/type": "no_result"}
    assert json.loads(last)["id"] == 7
    assert gateway_session.lost is None
    await runner.cleanup()


async def test_an_answer_that_goes_on_in_another_stream_is_seen_there(
    gateway: ToolGateway, tmp_path: Path
) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        data = b"id: 1\ndata:\n\n" if request.method == "POST" else event(json.dumps(RESULT).encode())
        assert request.headers.get("Last-Event-ID") == (None if request.method == "POST" else "1")
        return web.Response(body=data, content_type="text/event-stream")

    runner, url = await scripted(handler)
    cassette = Cassette(tmp_path / "c", Mode.record)
    gateway_session = await gateway.open_session(ToolServer(url, {}), cassette)
    async with aiohttp.ClientSession() as client:
        async with client.post(gateway_session.url, json=CALL, headers=HEADERS) as answer:
            await answer.read()
        assert gateway_session.lost is None
        async with client.get(gateway_session.url, headers={**HEADERS, "Last-Event-ID": "1"}) as answer:
            assert json.dumps(RESULT).encode() in await answer.read()
    assert cassette.find(cassette.key("local", "t", {})) == {"result": RESULT["result"]}
    assert (gateway_session.counts.calls, gateway_session.counts.errors) == (1, 0)
    await runner.cleanup()


async def test_an_environment_without_room_is_asked_again_and_what_it_has_room_for_passes(
    gateway: ToolGateway,
) -> None:
    times: list[float] = []

    async def handler(request: web.Request) -> web.Response:
        times.append(time.monotonic())
        if len(times) < 3:
            return web.Response(status=503, headers={"Retry-After": "1"})
        return web.json_response(
            {"jsonrpc": "2.0", "id": 0, "result": {}}, headers={"Mcp-Session-Id": "first"}
        )

    runner, url = await scripted(handler)
    hello = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {}}
    gateway_session = await gateway.open_session(ToolServer(url, {}))
    async with aiohttp.ClientSession() as client:
        assert await post(client, gateway_session.url, hello) == (
            200,
            {"jsonrpc": "2.0", "id": 0, "result": {}},
        )
    assert 0.9 < times[2] - times[0] < 20
    assert gateway_session.mcp_sessions == {"first"} and gateway_session.lost is None

    times[:] = [0.0] * -100
    gateway_session = await gateway.open_session(ToolServer(url, {}, connect_timeout=0.5))
    times.clear()
    async with aiohttp.ClientSession() as client:
        _, response = await post(client, gateway_session.url, hello)
    assert response["error"]["data"] == {"type": "environment_lost"}
    assert "did not open a session within 0.5 seconds" in str(gateway_session.lost)
    await runner.cleanup()


async def test_a_request_that_the_agent_breaks_off_is_broken_off_at_the_environment(
    gateway: ToolGateway,
) -> None:
    began, ended = asyncio.Event(), asyncio.Event()

    async def handler(request: web.Request) -> web.Response:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        raise AssertionError

    runner, url = await scripted(handler, handler_cancellation=True)
    gateway_session = await gateway.open_session(ToolServer(url, {}))
    async with aiohttp.ClientSession() as client:
        call = asyncio.create_task(post(client, gateway_session.url, CALL))
        await began.wait()
        (task,) = gateway_session.tasks
        call.cancel()
        await ended.wait()
    await asyncio.wait({task})
    assert task.cancelled() and not gateway_session.tasks
    assert (gateway_session.counts.errors, gateway_session.lost) == (1, None)
    await runner.cleanup()


async def test_a_session_that_the_agent_has_ended_is_known_no_more_and_ended_once(
    gateway: ToolGateway,
) -> None:
    methods = []

    async def handler(request: web.Request) -> web.Response:
        methods.append(request.method)
        return web.json_response({}, headers={"Mcp-Session-Id": "mine"})

    runner, url = await scripted(handler)
    gateway_session = await gateway.open_session(ToolServer(url, {}))
    session_header = {"Mcp-Session-Id": "mine"}
    async with aiohttp.ClientSession() as client:
        await post(client, gateway_session.url, {"id": 0, "method": "initialize"})
        for status in (200, 404):
            async with client.delete(gateway_session.url, headers=session_header) as answer:
                assert answer.status == status
        status, refusal = await post(
            client, gateway_session.url, {"id": 1, "method": "ping"}, **session_header
        )
    assert (status, refusal["id"], refusal["error"]["code"]) == (404, None, -32600)
    await gateway_session.close()
    assert methods == ["POST", "DELETE"]
    await runner.cleanup()


async def test_only_requests_are_calls_and_responses_pass(gateway: ToolGateway) -> None:
    received = []

    async def handler(request: web.Request) -> web.Response:
        received.append(await request.json())
        return web.Response(status=202)

    runner, url = await scripted(handler)
    gateway_session = await gateway.open_session(ToolServer(url, {}))
    sent = [{"method": "tools/call"}, {"method": "tools/list"}, {"id": 1, "result": {}}]
    async with aiohttp.ClientSession() as client:
        for message in sent:
            assert await post(client, gateway_session.url, message) == (202, None)
    assert (received, gateway_session.counts.calls) == (sent, 0)
    await runner.cleanup()


async def test_a_stopped_gateway_has_closed_its_sessions_and_may_start_again(gateway: ToolGateway) -> None:
    sessions = [await gateway.open_session(NOWHERE) for _ in range(3)]
    sessions[0]._unrecorded = CassetteError("reported by its episode")
    client = sessions[0].http
    await gateway.stop()
    await gateway.stop()
    assert client.closed and gateway._sessions == {}
    with pytest.raises(aiohttp.ClientConnectorError):
        async with aiohttp.ClientSession() as other:
            await post(other, sessions[1].url, CALL)
    again = await gateway.open_session(NOWHERE)
    async with aiohttp.ClientSession() as other:
        assert (await post(other, again.url, CALL))[1]["error"]["data"] == {"type": "environment_lost"}


# Cassettes


async def test_a_lost_environment_replays_no_call_either(gateway: ToolGateway, tmp_path: Path) -> None:
    cassette = Cassette(tmp_path / "c", Mode.replay_or_record)
    cassette.keep(cassette.key("local", "t", {}), {"result": RESULT["result"]})
    gateway_session = await gateway.open_session(NOWHERE, cassette)
    async with aiohttp.ClientSession() as client:
        for number in range(2):
            assert (await post(client, gateway_session.url, {**CALL, "id": number}))[1]["result"]
        assert gateway_session._pending == {}
        gateway_session.mark_lost("gone")
        _, answer = await post(client, gateway_session.url, CALL)
    assert answer["error"]["data"] == {"type": "environment_lost"}
    counts = gateway_session.counts
    assert (counts.calls, counts.replayed, counts.errors) == (3, 2, 1)


CALLS: list[tuple[str, dict[str, Any]]] = [
    ("echo", {"value": "x"}),
    ("count", {}),
    ("count", {}),
    ("many_kinds", {}),
    ("structured", {"x": 3}),
    ("fails", {"how": "so"}),
    ("nothing", {}),
]


async def ask_all(session: ClientSession) -> list[Any]:
    return [
        (await session.list_tools()).model_dump(),
        *[(await session.call_tool(name, arguments)).model_dump() for name, arguments in CALLS],
    ]


async def test_an_episode_is_replayed_with_the_environment_switched_off(
    gateway: ToolGateway, odd: ServerProcess, tmp_path: Path
) -> None:
    path = tmp_path / "calls.jsonl"
    recorded = await gateway.open_session(odd.tools(), Cassette(path, Mode.record))
    async with agent(recorded.url) as session:
        answers = await ask_all(session)
    await recorded.close()
    for _ in range(2):
        replayed = await gateway.open_session(NOWHERE, Cassette(path, Mode.replay))
        async with agent(replayed.url) as session:
            assert await ask_all(session) == answers
            assert (await session.send_ping()).model_dump(exclude_none=True) == {}
            missed = await session.call_tool("echo", {"value": "y"})
            with pytest.raises(McpError, match="resources/list"):
                await session.list_resources()
        await replayed.close()
        assert missed.isError and "no call of echo" in text_of(missed)
        assert missed.meta == {"aworld-train/type": "cassette_miss"}
        counts = replayed.counts
        assert (counts.calls, counts.replayed, counts.missed, counts.errors) == (8, 7, 1, 3)
        assert (recorded.counts.calls, recorded.counts.errors) == (7, 2)
        assert replayed.lost is None
    assert TOKEN not in path.read_text()


async def test_our_own_loop_replays_what_an_agent_recorded_and_the_other_way_round(
    gateway: ToolGateway, odd: ServerProcess, tmp_path: Path
) -> None:
    gateway_session = await gateway.open_session(odd.tools(), Cassette(tmp_path / "agents", Mode.record))
    async with agent(gateway_session.url) as session:
        recorded = await ask_all(session)
    async with RecordedTools(NOWHERE, Cassette(tmp_path / "agents", Mode.replay)) as tools:
        assert [one["function"]["name"] for one in await tools.schemas()] == [
            one["name"] for one in recorded[0]["tools"]
        ]
        results = [await tools.call(name, arguments) for name, arguments in CALLS]
    assert [result.is_error for result in results] == [one["isError"] for one in recorded[1:]]

    async with RecordedTools(odd.tools(), Cassette(tmp_path / "ours", Mode.record)) as tools:
        await tools.schemas()
        for name, arguments in CALLS:
            await tools.call(name, arguments)
    gateway_session = await gateway.open_session(NOWHERE, Cassette(tmp_path / "ours", Mode.replay))
    async with agent(gateway_session.url) as session:
        assert (await ask_all(session))[1:] == recorded[1:]


async def test_gaps_are_filled_and_what_is_there_is_not_asked_for(
    gateway: ToolGateway, odd: ServerProcess, tmp_path: Path
) -> None:
    path = tmp_path / "c"
    first = await gateway.open_session(odd.tools(), Cassette(path, Mode.record))
    async with agent(first.url) as session:
        await session.list_tools()
        assert text_of(await session.call_tool("count", {"what": "a"})) == "1"
    second = await gateway.open_session(odd.tools(), Cassette(path, Mode.replay_or_record))
    async with agent(second.url) as session:
        assert text_of(await session.call_tool("count", {"what": "a"})) == "1"
        assert text_of(await session.call_tool("count", {"what": "b"})) == "1"
        # The environment has not been asked for `a` in this session.
        assert text_of(await session.call_tool("count", {"what": "a"})) == "1"
    assert (second.counts.calls, second.counts.replayed) == (3, 2)
    third = await gateway.open_session(NOWHERE, Cassette(path, Mode.replay))
    async with agent(third.url) as session:
        assert text_of(await session.call_tool("count", {"what": "b"})) == "1"


async def test_what_was_lost_cancelled_or_too_late_is_not_recorded(
    gateway: ToolGateway, tmp_path: Path
) -> None:
    server = ServerProcess(STREAMING_ODD)
    cassette = Cassette(tmp_path / "c", Mode.record)
    try:
        gateway_session = await gateway.open_session(server.tools(call=0.5), cassette)
        async with agent(gateway_session.url) as session:
            assert (await session.call_tool("wait", {"seconds": 30})).isError
            await lost_call(session, "crash")
    finally:
        server.kill()
    await gateway_session.close()
    assert not (tmp_path / "c").read_text()


async def test_a_cassette_that_cannot_be_replayed_is_an_error_before_the_agent_starts(
    gateway: ToolGateway, tmp_path: Path
) -> None:
    Cassette(tmp_path / "c", Mode.record).keep_tools("local:a", [])
    with pytest.raises(CassetteError, match="no tool list of the server 'local', only those of local:a"):
        await gateway.open_session(NOWHERE, Cassette(tmp_path / "c", Mode.replay))
    assert gateway._sessions == {}


async def test_a_record_that_cannot_be_written_is_told_to_the_episode_s_owner_and_not_to_the_agent(
    gateway: ToolGateway, calculator: ServerProcess
) -> None:
    gateway_session = await gateway.open_session(calculator.tools(), Cassette("/dev/full", Mode.record))
    async with agent(gateway_session.url) as session:
        assert text_of(await session.call_tool("calculator", {"expression": "1+1"})) == "2"
    with pytest.raises(CassetteError, match="No space left"):
        await gateway_session.close()


async def test_a_lost_episode_s_session_does_not_keep_its_worker(gateway: ToolGateway) -> None:
    ended: list[str] = []

    async def handler(request: web.Request) -> web.Response:
        if request.method == "DELETE":
            ended.append(request.headers["Mcp-Session-Id"])
            return web.Response()
        message = await request.json()
        if message["method"] == "tools/call":
            return web.Response(status=404)
        opened = {"jsonrpc": "2.0", "id": 0, "result": {}}
        return web.json_response(opened, headers={"Mcp-Session-Id": "mine"})

    runner, url = await scripted(handler)
    gateway_session = await gateway.open_session(ToolServer(url, {}))
    async with aiohttp.ClientSession() as client:
        await post(client, gateway_session.url, {"jsonrpc": "2.0", "id": 0, "method": "initialize"})
        await post(client, gateway_session.url, CALL, **{"Mcp-Session-Id": "mine"})
    assert gateway_session.lost is not None
    await gateway_session.close()
    assert ended == ["mine"]
    await runner.cleanup()
