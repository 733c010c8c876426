"""An episode's tools against a real MCP server over a real socket, also one that is slow, dies or comes back."""

import asyncio
import base64
import gc
import json
import math
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from aiohttp import web

from aworld_train.rollout import tools as tools_module
from aworld_train.rollout.outcome import EnvironmentLost, ToolsBroken
from aworld_train.rollout.tools import (
    ToolResult,
    ToolServer,
    ToolSession,
    text_and_images_of,
    wait_until_healthy,
)
from tests.proxies import Proxy, proxy_variables
from tests.tool_servers import JSON_CALCULATOR, SOON, TOKEN, WITHIN, ServerProcess
from tests.vision import png

# The function that every supported release of the MCP SDK has is deprecated in the latest ones.
pytestmark = pytest.mark.filterwarnings("ignore:Use `streamable_http_client`:DeprecationWarning")


# Tools that sleep, fail and answer with other things than text; settings as the calculator's.
ODD_SERVER = """
import asyncio, os
from mcp import types
from mcp.server.fastmcp import FastMCP

server = FastMCP("odd", host="127.0.0.1", port=int(os.environ["PORT"]), log_level="ERROR")

@server.tool()
async def slow(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return f"slept {seconds}"

@server.tool()
async def two_parts() -> list[types.ContentBlock]:
    picture = types.ImageContent(type="image", data="", mimeType="image/png")
    return [types.TextContent(type="text", text="one"), picture, types.TextContent(type="text", text="two")]

@server.tool()
async def echo(value: object) -> str:
    return repr(value)

@server.custom_route("/health", methods=["GET"])
async def health(request):
    from starlette.responses import Response
    return Response()

server.run("streamable-http")
"""


@pytest.fixture(scope="module")
def calculator() -> Iterator[ServerProcess]:
    server = ServerProcess(JSON_CALCULATOR)
    yield server
    server.kill()


@pytest.fixture
def mortal() -> Iterator[ServerProcess]:
    """A calculator for one test, which may kill it."""
    server = ServerProcess(JSON_CALCULATOR)
    yield server
    server.kill()


@pytest.fixture(scope="module")
def odd() -> Iterator[ServerProcess]:
    server = ServerProcess(["-c", ODD_SERVER])
    yield server
    server.kill()


def tool_server(
    process: ServerProcess, token: str = TOKEN, call: float = WITHIN, connect: float = WITHIN
) -> ToolServer:
    return ToolServer(process.url, {"Authorization": f"Bearer {token}"}, call, connect)


async def nothing_left(
    tasks_before: set["asyncio.Task[object]"], port: int, kept_open: int = 0, within: float = SOON
) -> None:
    """Wait until this process has no task left of the sessions that were closed, and so many sockets at most."""

    def left() -> list[object]:
        tasks = asyncio.all_tasks() - tasks_before
        sockets = [c for c in psutil.Process().net_connections("tcp") if c.raddr and c.raddr.port == port]
        open_ones = [c for c in sockets if c.status != psutil.CONN_TIME_WAIT]
        return [*tasks, *(open_ones if len(open_ones) > kept_open else [])]

    deadline = time.monotonic() + within
    while left():
        assert time.monotonic() < deadline, left()
        await asyncio.sleep(0.05)


async def test_a_call_gives_the_tools_text(calculator: ServerProcess) -> None:
    async with ToolSession(tool_server(calculator)) as tools:
        result = await tools.call("calculator", {"expression": "6*7"})
        assert (result.text, result.is_error) == ("42", False)
        result = await tools.call("calculator", {"expression": "1/0"})
        assert (result.text, result.is_error) == ("Error: division by zero", True)
        result = await tools.call("calculator", {"expression": "2+2"})
        assert (result.text, result.is_error) == ("4", False)


async def test_a_proxy_for_the_world_is_not_asked_for_tools_on_this_machine(
    calculator: ServerProcess,
) -> None:
    with proxy_variables(http="http://127.0.0.1:9", all="http://127.0.0.1:9"):
        assert await wait_until_healthy(calculator.health, 5)
        async with ToolSession(tool_server(calculator)) as tools:
            assert (await tools.call("calculator", {"expression": "6*7"})).text == "42"


async def test_a_proxy_leads_to_far_tools() -> None:
    initialized = {"id": 0, "result": {"protocolVersion": "2025-06-18"}}
    with Proxy(body=initialized) as proxy, proxy.variables("all"):
        assert await wait_until_healthy("http://tools.invalid/health", 5)
        async with ToolSession(ToolServer("http://tools.invalid/mcp", {}, connect_timeout=5)) as tools:
            with pytest.raises(EnvironmentLost):
                await tools.list_tools()
    assert proxy.requests[:2] == [("GET", "tools.invalid"), ("POST", "tools.invalid")]


async def test_a_proxy_that_refuses_loses_the_environment_without_showing_its_password() -> None:
    with Proxy(status=407) as proxy, proxy.variables("https"):
        async with ToolSession(ToolServer("https://tools.invalid/mcp", {}, connect_timeout=5)) as tools:
            with pytest.raises(EnvironmentLost, match="407") as caught:
                await tools.list_tools()
    assert "sesame" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("no_such_tool", {}), ("calculator", {}), ("calculator", {"expression": 5}), ("", {})],
    ids=["unknown tool", "argument missing", "argument of another type", "no name"],
)
async def test_what_the_server_refuses_is_an_error_result_and_the_session_goes_on(
    calculator: ServerProcess, name: str, arguments: dict[str, object]
) -> None:
    async with ToolSession(tool_server(calculator)) as tools:
        result = await tools.call(name, arguments)
        assert result.is_error
        assert result.text
        assert (await tools.call("calculator", {"expression": "1+1"})).text == "2"


def nested(depth: int) -> dict[str, object]:
    value: dict[str, object] = {}
    for _ in range(depth - 1):
        value = {"a": value}
    return value


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        (float("inf"), "cannot be written as JSON"),
        (float("nan"), "cannot be written as JSON"),
        ("\ud800", "cannot be written as JSON"),
        (nested(100), "nested more than 100 deep"),
        (nested(400), "nested more than 100 deep"),
        (nested(20_000), "cannot be written as JSON"),
    ],
    ids=["infinity", "not a number", "half a character", "just too deep", "deep", "abyss"],
)
async def test_arguments_that_no_tool_could_be_sent_are_an_error_result_and_the_session_goes_on(
    odd: ServerProcess, value: object, complaint: str
) -> None:
    async with ToolSession(tool_server(odd)) as tools:
        result = await tools.call("echo", {"value": value})
        assert result.is_error
        assert complaint in result.text
        assert (await tools.call("echo", {"value": 1})).text == "1"


@pytest.mark.parametrize(
    "value", [nested(90), 10**400, -0.0, "\x00\u2028 é 漢 🙂", {"": [None, True, {}]}], ids=ascii
)
async def test_arguments_arrive_as_they_were_written(odd: ServerProcess, value: object) -> None:
    async with ToolSession(tool_server(odd)) as tools:
        result = await tools.call("echo", {"value": value})
    assert (result.text, result.is_error) == (repr(value), False)


async def test_parts_that_are_no_text_are_named(odd: ServerProcess) -> None:
    async with ToolSession(tool_server(odd)) as tools:
        result = await tools.call("two_parts", {})
    assert result.text == "one\n[image content, not shown]\ntwo"


async def test_a_tool_that_takes_too_long_is_an_error_result_and_the_session_goes_on(
    odd: ServerProcess,
) -> None:
    async with ToolSession(tool_server(odd, call=5.0)) as tools:
        await tools.call("slow", {"seconds": 0})
        began = time.monotonic()
        result = await tools.call("slow", {"seconds": 600})
        assert 4.9 < time.monotonic() - began < SOON
        assert (result.text, result.is_error) == ("Error: no answer within 5 seconds", True)
        assert (await tools.call("slow", {"seconds": 0})).text == "slept 0.0"


async def test_a_call_given_up_does_not_end_the_session_later_on(odd: ServerProcess) -> None:
    async with ToolSession(tool_server(odd, call=5.0, connect=5.0)) as tools:
        assert (await tools.call("slow", {"seconds": 600})).is_error
        # Longer than both limits together: the request that was given up is still open, and may not time out now.
        for _ in range(8):
            assert (await tools.call("slow", {"seconds": 1.5})).text == "slept 1.5"


async def test_a_wrong_token_is_a_lost_environment_that_says_why(calculator: ServerProcess) -> None:
    async with ToolSession(tool_server(calculator, token="wrong")) as tools:
        with pytest.raises(EnvironmentLost, match="401"):
            await tools.call("calculator", {"expression": "1+1"})


async def test_a_failure_that_was_told_is_not_told_again_by_asyncio(
    calculator: ServerProcess, caplog: pytest.LogCaptureFixture
) -> None:
    async with ToolSession(tool_server(calculator, token="wrong")) as tools:
        with pytest.raises(EnvironmentLost):
            await tools.call("calculator", {"expression": "1+1"})
    del tools
    gc.collect()
    assert "never retrieved" not in caplog.text


async def test_a_server_that_is_not_there_is_a_lost_environment_at_once(mortal: ServerProcess) -> None:
    mortal.kill()
    began = time.monotonic()
    async with ToolSession(tool_server(mortal)) as tools:
        with pytest.raises(EnvironmentLost, match=str(mortal.port)):
            await tools.call("calculator", {"expression": "1+1"})
    with pytest.raises(EnvironmentLost):
        await tool_server(mortal).schemas()
    assert time.monotonic() - began < SOON


async def test_a_server_that_hangs_at_the_door_is_a_lost_environment_after_the_connect_timeout(
    mortal: ServerProcess,
) -> None:
    before = asyncio.all_tasks()
    mortal.freeze()
    began = time.monotonic()
    try:
        async with ToolSession(tool_server(mortal, connect=1.0)) as tools:
            with pytest.raises(EnvironmentLost, match="did not open a session within 1 seconds"):
                await tools.call("calculator", {"expression": "1+1"})
        assert time.monotonic() - began < SOON
        await nothing_left(before, mortal.port)
    finally:
        mortal.thaw()


BUSY = {"id": 0, "error": {"message": "no room", "data": {"type": "busy"}}}


@asynccontextmanager
async def served(handler: Any) -> AsyncIterator[ToolServer]:
    """A server that answers requests with ``handler``."""
    app = web.Application()
    app.router.add_route("*", "/mcp", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield ToolServer(f"http://127.0.0.1:{runner.addresses[0][1]}/mcp", {}, connect_timeout=WITHIN)
    finally:
        await runner.cleanup()


@pytest.mark.parametrize(
    ("answer", "pauses", "requests", "reason"),
    [
        ({"status": 503}, (0.0,), 3, ""),
        ({"text": json.dumps(BUSY)}, (0.0, 0.0), 3, ""),
        ({"text": json.dumps(BUSY)}, (0.0, 60.0), 2, "no room"),  # not waited for: time would be up by then
        ({"status": 500}, (0.0,), 1, "HTTP 500"),
        ({"text": json.dumps({"id": 0, "error": {"message": "no"}})}, (0.0,), 1, "no"),
    ],
)
async def test_a_full_server_is_asked_again_while_there_is_time_and_no_other_one_is(
    answer: dict[str, Any],
    pauses: tuple[float, ...],
    requests: int,
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tools_module, "_BUSY_SECONDS", pauses)
    monkeypatch.setattr(tools_module, "random", SimpleNamespace(uniform=lambda low, high: 1000.0))
    methods = []

    async def handler(request: web.Request) -> web.Response:
        methods.append(method := (await request.json())["method"])
        if method == "initialize" and len(methods) < 3:
            return web.Response(**answer)
        return web.json_response({"id": 1, "result": {"tools": []}})

    async with served(handler) as server, ToolSession(server) as tools:
        if reason:
            with pytest.raises(EnvironmentLost, match=reason):
                await tools.list_tools()
        else:
            assert await tools.list_tools() == []
    assert methods.count("initialize") == requests


@asynccontextmanager
async def answering(**answers: Any) -> AsyncIterator[tuple[ToolServer, list[Any]]]:
    """A server whose answer to ``tools/call`` is that of ``call``, and what it received; None is no answer at all."""
    received: list[Any] = []

    async def handler(request: web.Request) -> web.Response:
        message = await request.json() if request.method == "POST" else {"method": request.method}
        received.append(message)
        if message["method"] == "initialize":
            opened: dict[str, Any] = {"id": message["id"], "result": {"capabilities": {}}}
            return web.json_response(opened, headers={"Mcp-Session-Id": "one"})
        answer = answers.get(message["method"].removeprefix("tools/"), {})
        if callable(answer):
            answer = answer(message["params"])
        if answer is None:
            await asyncio.Event().wait()
        return web.json_response({"id": message.get("id"), **answer}, status=answer.get("status", 200))

    async with served(handler) as server:
        yield server, received


TEXT = {"type": "text", "text": "4"}
RESOURCES = [{"type": "resource", "resource": {"uri": "a:b", key: "5"}} for key in ("text", "blob")]
RESOURCE_TEXT = "[resource a:b]\n5\n[resource a:b, binary, not shown]"


@pytest.mark.parametrize(
    ("answer", "text", "is_error", "raw"),
    [
        ({"result": {"content": [TEXT]}}, "4", False, {"content": [TEXT]}),
        ({"result": {"content": [], "isError": True}}, "", True, {"content": [], "isError": True}),
        (
            {"result": {"content": [TEXT, *RESOURCES]}},
            f"4\n{RESOURCE_TEXT}",
            False,
            {"content": [TEXT, *RESOURCES]},
        ),
        ({"error": {"message": "no", "code": 1}}, "Error: no", True, {"message": "no", "code": 1}),
    ],
)
async def test_a_result_is_the_servers_as_text_and_whole(
    answer: Any, text: str, is_error: bool, raw: Any
) -> None:
    async with answering(call=answer) as (server, received), ToolSession(server) as tools:
        result = await tools.call("add", {"a": 1})
    assert result == ToolResult(text, is_error, raw) == replace(result, replayed=True)
    assert not result.replayed and "raw" not in repr(result)
    assert received[2]["params"] == {"name": "add", "arguments": {"a": 1}}


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ({"error": {"message": "gone", "data": {"type": "worker_lost"}}}, "Error: gone"),
        ({"error": None}, "Error: the answer to tools/call has no result"),
        ({"status": 500}, "Error: there is no result of add: HTTP 500 Internal Server Error"),
    ],
    ids=ascii,
)
async def test_what_the_tools_of_a_session_may_have_forged_is_an_error_result(answer: Any, text: str) -> None:
    async with answering(call=answer) as (server, _), ToolSession(server) as tools:
        result = await tools.call("add", {})
        assert (result.text, result.is_error) == (text, True)
        assert (await tools.call("add", {})).text == text


def test_an_image_without_data_is_a_note() -> None:
    forged = {"content": [{"type": "image"}, {"type": "image", "data": 5}]}
    assert text_and_images_of(forged) == ("[image content, not shown]\n[image content, not shown]", ())


async def test_a_server_is_told_which_calls_are_given_up_and_when_its_session_ends() -> None:
    called = asyncio.Event()
    async with answering(call=lambda params: called.set()) as (server, received):
        async with ToolSession(replace(server, call_timeout=0.1)) as tools:
            result = await tools.call("add", {})
            assert result == ToolResult("Error: no answer within 0.1 seconds", True)
        called.clear()
        async with ToolSession(server) as tools:
            call = asyncio.create_task(tools.call("add", {}))
            await called.wait()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
    cancelled = [m["params"] for m in received if m["method"] == "notifications/cancelled"]
    reasons = ("it took too long", "the episode was cancelled")
    assert cancelled == [{"requestId": 1, "reason": reason} for reason in reasons]
    assert [m["method"] for m in received].count("DELETE") == 2


async def test_a_session_that_is_left_while_it_opens_is_given_up() -> None:
    opened = asyncio.Event()

    async def handler(request: web.Request) -> web.Response:
        opened.set()
        await asyncio.Event().wait()
        return web.Response()

    async with served(handler) as server:
        async with ToolSession(server) as tools:
            call = asyncio.create_task(tools.call("add", {}))
            await opened.wait()
        assert tools._task is not None and tools._task.cancelled()
        with pytest.raises(asyncio.CancelledError):
            await call


@pytest.mark.parametrize(
    ("call_timeout", "limits", "seconds"),
    [(5.0, {"a": 90.0}, 5.0), (None, {"a": 10.0, "b": 90.0}, 120.0), (None, {}, 60.0)],
)
def test_a_call_may_take_what_its_server_allows_unless_it_is_told(
    call_timeout: float | None, limits: dict[str, float], seconds: float
) -> None:
    assert ToolServer("http://h/mcp", {}, call_timeout).call_seconds(limits) == seconds


@pytest.mark.parametrize(("max_pages", "names"), [(100, "abc"), (2, "ab")])
async def test_a_list_of_tools_has_pages_up_to_a_limit(
    max_pages: int, names: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tools_module, "_MAX_PAGES", max_pages)
    cursors = []

    def page(params: dict[str, str]) -> dict[str, Any]:
        cursors.append(params)
        following = {"": "b", "b": "c", "c": ""}[cursor := params.get("cursor", "")]
        tool = {"name": cursor or "a", "inputSchema": {"type": "object"}}
        described = {**tool, "description": "Adds."} if cursor else tool
        return {"result": {"tools": [described], "nextCursor": following}}

    async with answering(list=page) as (server, _):
        tools = await server.schemas()
    assert cursors == [{}, {"cursor": "b"}, {"cursor": "c"}][: len(names)]
    assert tools == [
        {
            "type": "function",
            "function": {
                "name": name,
                "description": "" if name == "a" else "Adds.",
                "parameters": {"type": "object", "properties": {}},
            },
        }
        for name in names
    ]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"error": {"message": "no"}}, "did not list its tools: no"),
        ({"status": 500}, "did not list its tools: HTTP 500 Internal Server Error"),
        ({"result": {}}, "did not list its tools: 'tools'"),
        (None, "did not list its tools in time"),
    ],
)
async def test_a_server_that_does_not_list_its_tools_is_a_lost_environment(answer: Any, reason: str) -> None:
    async with answering(list=answer) as (server, _), ToolSession(server) as tools:
        await tools._session()
        tools._server = replace(server, connect_timeout=20 if answer else 0.05)
        with pytest.raises(EnvironmentLost) as lost:
            await tools.list_tools()
    assert str(lost.value) == f"{server.url} {reason}"


async def test_lists_of_tools_are_kept_by_server_and_headers_and_failures_are_not() -> None:
    answers = [{"error": {"message": "no"}}, *({"result": {"tools": []}} for _ in range(2))]
    async with answering(list=lambda params: answers.pop(0)) as (server, _):
        first = replace(server, headers={"a": "1", "b": "2"})
        with pytest.raises(EnvironmentLost):
            await first.schemas()
        tools = await first.schemas()
        assert await replace(server, headers={"b": "2", "a": "1"}).schemas() is tools
        assert await replace(server, headers={"a": "1", "b": "3"}).schemas() is not tools
    assert answers == []


def test_images_of_a_result_stand_where_they_were_and_those_that_are_no_images_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tools_module, "MAX_IMAGES", 2)
    picture = {"type": "image", "data": base64.b64encode(png()).decode()}
    broken = {"type": "image", "data": "broken"}
    text, images = text_and_images_of(
        {"content": [TEXT, TEXT, picture, TEXT, broken, picture, picture, *RESOURCES]}
    )
    note = "[image content, not shown]"
    assert text == f"4\n44\n{note}{note}\n{RESOURCE_TEXT}"
    assert [(image.position, image.file) for image in images] == [(3, png()), (5 + len(note), png())]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (nested(100), None),
        (nested(101), "are nested more than 100 deep"),
        ({"a": [1, [[]]], "b": {}}, None),
        ({"a": json.loads("[" * 99 + "]" * 99), "b": 1}, None),
        ({"a": json.loads("[" * 100 + "]" * 100), "b": 1}, "are nested more than 100 deep"),
    ],
)
def test_arguments_may_be_nested_a_hundred_deep(arguments: dict[str, Any], complaint: str | None) -> None:
    assert tools_module._unsendable(arguments) == complaint


@pytest.mark.parametrize(("log_seconds", "logged"), [(math.inf, 1), (0.0, 2)])
async def test_what_a_server_says_while_it_opens_is_logged_once_in_a_while(
    log_seconds: float, logged: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tools_module, "_logged", -math.inf)
    monkeypatch.setattr(tools_module, "_LOG_SECONDS", log_seconds)
    note = {"method": "notifications/message", "params": {"data": "one waits"}}

    async def handler(request: web.Request) -> web.Response:
        number = (await request.json()).get("id")
        answer = {"id": number, "result": {"tools": []}}
        notes = [note] * (2 if number == 0 else 1)  # the last one comes in the open session
        body = "".join(f"data: {json.dumps(message)}\n\n" for message in [*notes, answer])
        return web.Response(text=body, content_type="text/event-stream")

    async with served(handler) as server, ToolSession(server) as tools:
        await tools.list_tools()
    messages = [record.getMessage() for record in caplog.records if record.name == tools_module.__name__]
    assert messages == [f"{server.url}: one waits"] * logged


async def test_a_server_killed_between_two_calls_is_a_lost_environment_within_seconds(
    mortal: ServerProcess,
) -> None:
    async with ToolSession(tool_server(mortal)) as tools:
        await tools.call("calculator", {"expression": "1+1"})
        mortal.kill()
        began = time.monotonic()
        for _ in range(2):
            with pytest.raises(EnvironmentLost):
                await tools.call("calculator", {"expression": "1+1"})
    assert time.monotonic() - began < SOON


async def test_a_server_killed_during_a_call_is_a_lost_environment_within_seconds() -> None:
    server = ServerProcess(["-c", ODD_SERVER])
    async with ToolSession(tool_server(server)) as tools:
        await tools.call("slow", {"seconds": 0})
        call = asyncio.create_task(tools.call("slow", {"seconds": 600}))
        await asyncio.sleep(0.5)
        server.kill()
        began = time.monotonic()
        with pytest.raises(EnvironmentLost):
            await call
    assert time.monotonic() - began < SOON


async def test_after_a_restart_the_old_session_is_lost_and_a_new_one_works(mortal: ServerProcess) -> None:
    async with ToolSession(tool_server(mortal)) as tools:
        await tools.call("calculator", {"expression": "1+1"})
        mortal.kill()
        mortal.start()
        # Nothing says who ended it, for this server is none of our gateways. The first call finds a closed connection.
        with pytest.raises(ToolsBroken):
            for _ in range(2):
                assert (await tools.call("calculator", {"expression": "1+1"})).is_error
    async with ToolSession(tool_server(mortal)) as tools:
        assert (await tools.call("calculator", {"expression": "1+1"})).text == "2"


async def test_sixty_sessions_at_once_each_get_their_own_answers_and_leave_some_connections_to_the_next(
    calculator: ServerProcess,
) -> None:
    before = asyncio.all_tasks()

    async def episode(number: int) -> list[str]:
        async with ToolSession(tool_server(calculator)) as tools:
            return [(await tools.call("calculator", {"expression": f"{number}*{k}"})).text for k in range(3)]

    for _ in range(3):
        async with asyncio.timeout(WITHIN):
            answers = await asyncio.gather(*(episode(number) for number in range(60)))
        assert answers == [[str(number * k) for k in range(3)] for number in range(60)]
    await nothing_left(before, calculator.port, kept_open=64)


async def test_sessions_that_were_lost_or_stopped_leave_nothing_either(mortal: ServerProcess) -> None:
    before = asyncio.all_tasks()

    async def lost() -> None:
        async with ToolSession(tool_server(mortal)) as tools:
            await tools.call("calculator", {"expression": "1+1"})
            await begun.wait()
            await tools.call("calculator", {"expression": "1+1"})

    async def stopped() -> None:
        async with asyncio.timeout(1.0), ToolSession(tool_server(mortal)) as tools:
            await tools.call("calculator", {"expression": "1+1"})
            await asyncio.sleep(60)

    begun = asyncio.Event()
    episodes = [asyncio.create_task(make()) for make in (lost, stopped, lost, stopped)]
    await asyncio.wait({episodes[1], episodes[3]}, timeout=WITHIN)
    mortal.kill()
    begun.set()
    ended = await asyncio.gather(*episodes, return_exceptions=True)
    assert [type(e) for e in ended] == [EnvironmentLost, TimeoutError, EnvironmentLost, TimeoutError]
    await nothing_left(before, mortal.port)


async def test_an_episode_that_calls_no_tool_opens_no_session() -> None:
    async with ToolSession(ToolServer("http://127.0.0.1:1/mcp", {})) as tools:
        assert tools._task is None


async def test_the_tools_are_listed_as_functions(calculator: ServerProcess) -> None:
    [schema] = await tool_server(calculator).schemas()
    assert schema["type"] == "function"
    assert schema["function"]["name"] == "calculator"
    assert schema["function"]["description"]
    assert schema["function"]["parameters"]["required"] == ["expression"]


async def test_many_episodes_ask_for_the_tools_once(
    calculator: ServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = []
    original = ToolSession.__init__

    def counting(self: ToolSession, server: ToolServer) -> None:
        opened.append(server)
        original(self, server)

    monkeypatch.setattr(ToolSession, "__init__", counting)
    server = ToolServer(calculator.url, {"Authorization": f"Bearer {TOKEN}", "X-Test": "once"})
    tool_lists = await asyncio.gather(*(server.schemas() for _ in range(50)))
    tool_lists.append(await server.schemas())
    assert len(opened) == 1
    assert all(tools == tool_lists[0] for tools in tool_lists)


async def test_episodes_that_wait_for_a_list_of_tools_share_its_failure(mortal: ServerProcess) -> None:
    mortal.freeze()
    began = time.monotonic()
    try:
        # One after the other they would take 400 seconds.
        server = tool_server(mortal, connect=2.0)
        failures = await asyncio.gather(*(server.schemas() for _ in range(200)), return_exceptions=True)
    finally:
        mortal.thaw()
    assert all(isinstance(failure, EnvironmentLost) for failure in failures)
    assert time.monotonic() - began < SOON


async def test_a_list_of_tools_is_asked_for_anew_after_a_minute(
    calculator: ServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = ToolServer(calculator.url, {"Authorization": f"Bearer {TOKEN}", "X-Test": "minute"})
    first = await server.schemas()
    assert await server.schemas() is first
    monkeypatch.setattr(tools_module, "_SCHEMA_SECONDS", -1.0)
    again = await server.schemas()
    assert again == first
    assert again is not first


@pytest.mark.parametrize("behaviour", ["hangs", "drips", "redirects", "refuses"])
async def test_a_server_that_does_not_answer_200_by_itself_is_not_healthy(
    behaviour: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tools_module, "_HEALTH_SECONDS", 0.2)
    requested_paths = []

    async def handler(request: web.Request) -> web.StreamResponse:
        requested_paths.append(request.path)
        if request.path == "/elsewhere":
            return web.Response()
        if behaviour == "redirects":
            raise web.HTTPFound("/elsewhere")
        if behaviour == "refuses":
            return web.Response(status=503)
        response = web.StreamResponse()
        if behaviour == "drips":
            await response.prepare(request)
        while True:
            await asyncio.sleep(0.05)
            if behaviour == "drips":
                await response.write(b" ")

    app = web.Application()
    app.router.add_get("/{path}", handler)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    async with asyncio.timeout(WITHIN):
        health = f"http://127.0.0.1:{runner.addresses[0][1]}/health"
        assert not await wait_until_healthy(health, 0.6)
    await runner.cleanup()
    assert len(requested_paths) >= 2
    assert set(requested_paths) == {"/health"}


async def test_health_is_waited_for(mortal: ServerProcess) -> None:
    assert await wait_until_healthy(mortal.health, WITHIN)
    mortal.kill()
    began = time.monotonic()
    assert not await wait_until_healthy(mortal.health, 1.0)
    assert time.monotonic() - began < SOON
    waiting = asyncio.create_task(wait_until_healthy(mortal.health, WITHIN))
    await asyncio.to_thread(mortal.start)
    assert await waiting
