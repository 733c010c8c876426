"""A worker as its gateway sees it: one in this process whose parts are scripted, and a real one.

Both are on a socket of their own.
"""

import asyncio
import gc
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import aiohttp
import pytest
from aiohttp import web

from aworld_train.env.directory import find_directory
from aworld_train.serving.channel import CHECK_HEADER, VARIABLE, Channel, derive_secret
from aworld_train.serving.tokens import new_secret
from aworld_train.serving.worker import app
from aworld_train.serving.worker.app import Worker
from aworld_train.serving.worker.failures import CallFailure
from aworld_train.serving.worker.launcher import EXIT_FOR_RESTART
from tests.environments import HEADERS, HELLO, ODD, eventually
from tests.unit.serving.worker.test_relay import CHANGED, RESOURCES, Servers, relay_of, with_tools

WITHIN = 120.0
SOON = 30.0
"""Where no process has to be started."""
SECRET = new_secret()
"""Of the environment that the workers here belong to."""
MCP = "http://worker/mcp"
SESSION = {"Mcp-Session-Id": "one", **HEADERS}
CRASH = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "crash", "arguments": {}}}
MAIN = "from aworld_train.serving.worker.__main__ import main; main()"
# The last thing that a tool does is to end what starts tools; that it has ended is seen by the wipe.
KILLED_IN_THE_WIPE = """
import os, signal, time
from aworld_train.serving.worker import cleaning

def end_processes(ground, original=cleaning.end_processes):
    for pid in ground.spared - {os.getpid()} if used else ():
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    original(ground)
    used.append(True)

used = []  # it is wiped once before its first session
cleaning.end_processes = end_processes
"""


@contextmanager
def worker(
    folder: Path, before: str = "", sessions: int = 1
) -> Iterator[tuple["subprocess.Popen[bytes]", str]]:
    """A worker with one of the odd servers, for so many sessions, and its socket; ``before`` is run in it first."""
    places = {name: folder / name for name in ("run", "workspace", "home", "tmp")}
    for place in places.values():
        place.mkdir(mode=0o700)
    manifest = folder / "manifest.json"
    described = asdict(find_directory(ODD).manifest) | {"sessions_per_worker": sessions}
    manifest.write_text(json.dumps(described))
    socket = str(places["run"] / "worker.sock")
    settings = {
        "socket": socket,
        "manifest": str(manifest),
        "python": sys.executable,
        "here": str(ODD),
        "workspace": str(places["workspace"]),
        "servers": ["odd"],
        "folders": [str(places[name]) for name in ("workspace", "home", "tmp")],
        "user": None,
        "own_user": None,
        "egress": None,
        "desktop": False,
    }
    variables = {
        "HOME": str(places["home"]),
        "TMPDIR": str(places["tmp"]),
        VARIABLE: derive_secret(SECRET, 0),
    }
    process = subprocess.Popen(
        [sys.executable, "-c", before + MAIN],
        env={**os.environ, **variables, "AWORLD_WORKER": json.dumps(settings)},
    )
    try:
        yield process, socket
    finally:
        process.terminate()
        process.wait(WITHIN)


def listens(path: str) -> bool:
    """Whether somebody takes connections there: a socket is in its folder a moment before."""
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(path) == 0


@asynccontextmanager
async def followed(path: str) -> AsyncIterator[tuple[aiohttp.ClientSession, "asyncio.Queue[Any]"]]:
    """A client of the worker, and what it says of itself where that changes; None when it has ended."""
    messages: asyncio.Queue[Any] = asyncio.Queue()
    proof = Channel(derive_secret(SECRET, 0)).request_headers()

    async def follow() -> None:
        ready = None
        with suppress(aiohttp.ClientPayloadError):
            async with http.get("http://worker/state") as state:
                async for line in state.content:
                    if (now := json.loads(line).get("ready", ready)) != ready:
                        ready = now
                        messages.put_nowait(ready)
        messages.put_nowait(None)

    async with (
        asyncio.timeout(WITHIN),
        aiohttp.ClientSession(connector=aiohttp.UnixConnector(path), headers=proof) as http,
    ):
        assert await asyncio.to_thread(eventually, lambda: listens(path), WITHIN)
        following = asyncio.create_task(follow())
        while not await messages.get():
            pass
        yield http, messages
        following.cancel()


# In this process


@dataclass
class Parts:
    """In place of a worker's spawner, cleaner, desktop and socket: what it had them do, in order."""

    steps: list[str] = field(default_factory=list)
    may_go_on: asyncio.Event = field(default_factory=asyncio.Event)
    failure: Exception | None = None

    async def ready(self) -> None:
        await self._take("spawner is ready")
        if self.failure is not None:
            raise self.failure

    async def clean(self) -> None:
        await self._take("cleaned")

    async def start(self) -> None:
        await self._take("desktop started")

    async def stop(self) -> None:
        await self._take("desktop stopped")

    async def watch(self, _: web.Request) -> web.Response:
        return web.Response(text="a picture")

    def is_own(self) -> bool:
        self.steps.append("socket looked at")
        return True

    async def _take(self, step: str) -> None:
        self.steps.append(step)
        await self.may_go_on.wait()


@dataclass
class Served:
    """A client of a worker in this process, whose tool servers are threads of it."""

    http: aiohttp.ClientSession
    worker: Worker
    parts: Parts
    servers: Servers

    async def state(self) -> aiohttp.ClientResponse:
        return await self.http.get("http://worker/state")

    async def post(self, message: Any, session: str = "one", **headers: str) -> tuple[int, Any]:
        """The status and the answer, None for none."""
        headers = {"Mcp-Session-Id": session, **headers}
        async with self.http.post(MCP, json=message, headers=headers) as response:
            text = await response.text()
        return response.status, json.loads(text) if text else None


@asynccontextmanager
async def served(
    folder: Path, sessions: int = 1, *, desktop: bool = False, holds: bool = False, **answers: Any
) -> AsyncIterator[Served]:
    """One for so many sessions at a time; ``holds``: its parts begin when ``may_go_on`` is set."""
    parts, servers = Parts(), Servers(**answers or {"a": with_tools("x")})
    if not holds:
        parts.may_go_on.set()
    relay = relay_of(servers, "broken")
    relay.manifest = replace(relay.manifest, sessions_per_worker=sessions)
    part = cast(Any, parts)
    channel = Channel(derive_secret(SECRET, 0))
    made = Worker(relay, part, part if sessions == 1 else None, channel, part, part if desktop else None)
    relay.report = made.report
    runner = web.AppRunner(
        made.application(), handler_cancellation=True, access_log=None, shutdown_timeout=0.1
    )
    await runner.setup()
    await web.UnixSite(runner, str(folder / "socket")).start()
    connector = aiohttp.UnixConnector(str(folder / "socket"))
    headers = channel.request_headers()
    async with asyncio.timeout(SOON), aiohttp.ClientSession(connector=connector, headers=headers) as http:
        one = Served(http, made, parts, servers)
        if not holds:
            await until(lambda: made._ready)
        yield one
    await runner.cleanup()
    assert made._tasks == set()


async def until(holds: Callable[[], object]) -> None:
    assert await asyncio.to_thread(eventually, holds, SOON)


async def line_of(state: aiohttp.ClientResponse) -> Any:
    return json.loads(await state.content.readline())


def calling(tool: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": tool, **params}}


def event(message: Any) -> bytes:
    return f"event: message\ndata: {json.dumps(message)}\n\n".encode()


RESULT = {"jsonrpc": "2.0", "id": 7, "result": {"content": [{"type": "text", "text": "x"}], "isError": False}}
ALIVE = b": still here\n\n"


@pytest.mark.parametrize("desktop", [False, True])
async def test_a_worker_takes_sessions_when_all_its_parts_are_ready(tmp_path: Path, desktop: bool) -> None:
    description = {"slots": 1, "starting": ""}
    async with served(tmp_path, desktop=desktop, holds=True) as one:
        state = await one.state()
        assert Channel(derive_secret(SECRET, 0)).is_worker(one.http.headers, state.headers)
        assert await line_of(state) == {
            **description,
            **{"ready": False, "servers": ["a", "broken"], "broken": {}},
        }
        status, refusal = await one.post(HELLO)
        assert (status, refusal["error"]["message"]) == (503, "this worker takes no session now")
        await until(lambda: one.parts.steps == ["spawner is ready"])
        one.parts.may_go_on.set()
        ready = {"ready": True, "servers": ["a"], "broken": {"broken": "broken could not be started"}}
        assert await line_of(state) == {**description, **ready}
        assert one.parts.steps == ["spawner is ready", "cleaned", *(["desktop started"] if desktop else [])]
        assert [name for name, _ in one.servers.started] == ["a"]
        assert (await one.post(HELLO))[0] == 200
        async with one.http.get("http://worker/desktop") as picture:
            assert picture.status == (200 if desktop else 404)


@pytest.mark.parametrize("secret", ["", "another"])
async def test_a_worker_serves_its_gateway_alone(tmp_path: Path, secret: str) -> None:
    proof = Channel(secret).request_headers() if secret else {}
    routes = [("POST", "mcp"), ("GET", "mcp"), ("DELETE", "mcp"), ("GET", "state"), ("GET", "desktop")]
    async with (
        served(tmp_path, desktop=True) as one,
        aiohttp.ClientSession(connector=one.http.connector, connector_owner=False) as stranger,
    ):
        await one.post(HELLO)
        for method, path in routes:
            url = f"http://worker/{path}"
            async with stranger.request(method, url, headers={**SESSION, **proof}, json=HELLO) as refused:
                assert refused.status == 401
                message = (await refused.json())["error"]["message"]
            assert message == "this is for the gateway of this worker alone"


async def test_a_worker_that_is_ended_before_it_is_ready_waits_for_nothing(tmp_path: Path) -> None:
    async with served(tmp_path, holds=True) as one:
        await until(lambda: one.parts.steps)


async def test_a_worker_that_cannot_be_made_ready_ends_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reasons: list[str] = []
    monkeypatch.setattr(app, "_end", reasons.append)
    async with served(tmp_path, holds=True) as one:
        one.parts.failure = CallFailure("tool_unavailable", "no module")
        one.parts.may_go_on.set()
        await until(lambda: reasons)
    assert reasons == ["CallFailure: no module"]


async def test_calls_are_told_of_and_the_state_is_repeated_when_nothing_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "STATE_SECONDS", 1000)
    async with served(tmp_path) as one:
        state = await one.state()
        description = await line_of(state)
        one.worker.report("a", "ok", 1.23456789)
        assert await line_of(state) == {"call": ["a", "ok", 1.234568]}
        monkeypatch.setattr(app, "STATE_SECONDS", 0.01)
        assert await line_of(await one.state()) == await line_of(await one.state()) == description
        repeated = await one.state()
        assert [await line_of(repeated) for _ in range(3)] == [description] * 3


async def test_a_stream_that_cannot_be_written_to_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: object) -> None:
        raise ConnectionResetError

    async with served(tmp_path) as one:
        monkeypatch.setattr(web.StreamResponse, "write", refuse)
        async with one.http.get("http://worker/state") as state:
            assert (await state.read(), one.worker._watchers) == (b"", set())


async def test_after_a_session_the_worker_is_cleaned_and_what_ran_is_started_for_the_next(
    tmp_path: Path,
) -> None:
    starts = iter([RESOURCES, {}])  # the second time it does not answer
    cleaning = ["desktop stopped", "cleaned", "socket looked at", "desktop started"]
    async with served(tmp_path, desktop=True, a=with_tools("x", initialize=lambda *_: next(starts))) as one:
        state = await one.state()
        assert (await line_of(state))["ready"]
        for ended in ([1], [1, 2]):
            assert (await one.post(HELLO))[0] == 200
            assert (await one.post(HELLO, "two"))[0] == 503
            one.parts.steps.clear()
            one.parts.may_go_on.clear()
            async with one.http.delete(MCP, headers=SESSION) as closed:
                assert closed.status == 200
            assert not (await line_of(state))["ready"]
            await until(lambda: one.parts.steps)
            # The second time it is one that was still being started.
            assert one.servers.ended == ended
            assert (await one.post(HELLO))[0] == 503
            one.parts.may_go_on.set()
            assert (await line_of(state))["ready"]
            assert one.parts.steps == cleaning
            await until(lambda: len(one.servers.started) == 2)


@pytest.mark.parametrize("sessions", [1, 2])
async def test_sessions_end_with_the_last_gateway_that_looks_at_the_worker(
    tmp_path: Path, sessions: int
) -> None:
    async with served(tmp_path, sessions) as one:
        states = [await one.state() for _ in range(3)]
        states.pop().close()
        await until(lambda: len(one.worker._watchers) == 2)
        for name in ["one", "two"][:sessions]:
            assert (await one.post(HELLO, name))[0] == 200
        states.pop().close()
        await until(lambda: len(one.worker._watchers) == 1)
        assert (await one.post(calling("x"))) == (200, RESULT)
        states.pop().close()
        await until(lambda: not one.worker.relay.sessions)
        await until(lambda: one.worker._ready)
        cleaned = ["cleaned", "cleaned", "socket looked at"] if sessions == 1 else []
        assert one.parts.steps == ["spawner is ready", *cleaned]
        # Without a session, nothing is to be cleaned.
        (await one.state()).close()
        await until(lambda: not one.worker._watchers)
        assert one.parts.steps == ["spawner is ready", *cleaned]
        assert (await one.post(HELLO))[0] == 200


async def test_what_belongs_to_no_session_is_refused(tmp_path: Path) -> None:
    async def status(method: str, data: str) -> tuple[int, str]:
        async with one.http.request(method, MCP, data=data, headers=SESSION) as response:
            return response.status, (await response.json())["error"]["message"]

    async with served(tmp_path) as one:
        assert await status("POST", json.dumps(CRASH)) == (404, "no such session")
        assert await status("GET", "") == (404, "no such session")
        assert await status("DELETE", "") == (404, "no such session")
        assert await status("POST", "{") == (400, "the body is not JSON")
        gc.collect()  # else the finalizers of earlier tests' objects may run where no call is possible any more
        assert await status("POST", "[" * 100_000) == (400, "the body is not JSON")
        for message in ([HELLO], {**HELLO, "id": [1]}, {**HELLO, "id": {}}):
            assert await status("POST", json.dumps(message)) == (
                400,
                "the body has to be one JSON-RPC message",
            )
        assert one.parts.steps == ["spawner is ready", "cleaned"]


async def test_a_session_has_the_servers_and_the_check_that_its_headers_ask_for(tmp_path: Path) -> None:
    async with served(tmp_path, 4, a=with_tools("x"), b=with_tools("y")) as one:
        status, refusal = await one.post(HELLO, MCP_SERVERS="none")
        assert (status, refusal["id"], refusal["error"]["data"]) == (400, 0, {"type": "unknown_server"})
        for name, headers in (
            ("all", {}),
            ("first", {"MCP_SERVERS": "a", "MCP-Servers": "b"}),
            ("other", {"MCP-Servers": "b", CHECK_HEADER: "1"}),
        ):
            assert (await one.post(HELLO, name, **headers))[0] == 200
        sessions = one.worker.relay.sessions
        assert {name: session.servers for name, session in sessions.items()} == {
            "all": ("a", "b"),
            "first": ("a",),
            "other": ("b",),
        }
        assert [name for name, session in sessions.items() if session.check] == ["other"]


async def test_a_message_that_asks_for_nothing_has_no_answer(tmp_path: Path) -> None:
    async with served(tmp_path, a=with_tools("x", x={"before": []})) as one:
        await one.post(HELLO)
        waiting = asyncio.create_task(one.post(calling("x")))
        await until(lambda: one.servers.requests[-1][1] == "tools/call")
        assert await one.post({"id": 8, "result": {}}) == (202, None)
        for params in (5, [1], None, {"requestId": [7]}, {"requestId": {}}):
            assert await one.post({"method": "notifications/cancelled", "params": params}) == (202, None)
        cancelled = {"method": "notifications/cancelled", "params": {"requestId": 7}}
        assert await one.post(cancelled) == (202, None)
        assert (await waiting)[1]["error"]["message"] == "cancelled"


async def test_an_answer_has_the_progress_before_it(tmp_path: Path) -> None:
    messages: list[dict[str, Any]] = [
        {"method": "notifications/progress", "params": {"progressToken": "mine", "progress": number}}
        for number in range(2)
    ]

    def answer(_: str, params: dict[str, Any]) -> dict[str, Any]:
        token = {"progressToken": params["_meta"]["progressToken"]}
        before = [{**message, "params": {**message["params"], **token}} for message in messages]
        return {"result": RESULT["result"], "before": before}

    async with served(tmp_path, a=with_tools("x", "y", x=answer)) as one:
        await one.post(HELLO)
        call = calling("x", _meta={"progressToken": "mine"})
        async with one.http.post(MCP, json=call, headers=SESSION) as response:
            assert response.content_type == "text/event-stream"
            assert await response.read() == b"".join(map(event, [*messages, RESULT]))


async def test_a_client_that_waits_is_told_that_the_worker_is_still_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_answer = threading.Event()

    def answer(_: str, params: dict[str, Any]) -> dict[str, Any]:
        may_answer.wait(SOON)
        progress = {
            "method": "notifications/progress",
            "params": {"progressToken": params["_meta"]["progressToken"]},
        }
        return {"result": RESULT["result"], "before": [progress, CHANGED]}

    async with served(tmp_path, a=with_tools("x", x=answer)) as one:
        await one.post(HELLO)
        monkeypatch.setattr(app, "_KEEP_ALIVE_SECONDS", 0.01)
        call = calling("x", _meta={"progressToken": "mine"})
        async with (
            one.http.get(MCP, headers=SESSION) as events,
            one.http.post(MCP, json=call, headers=SESSION) as response,
        ):
            for stream in (events, response):
                for _ in range(2):
                    assert await stream.content.readexactly(len(ALIVE)) == ALIVE
            monkeypatch.setattr(app, "_KEEP_ALIVE_SECONDS", 0.2)
            may_answer.set()
            progress = {"method": "notifications/progress", "params": {"progressToken": "mine"}}
            body = (await response.read()).replace(ALIVE, b"")
            assert body == event(progress) + event(RESULT)
            async with one.http.delete(MCP, headers=SESSION):
                pass
            assert (await events.read()).replace(ALIVE, b"") == event(CHANGED)


async def test_a_call_whose_client_has_left_is_cancelled(tmp_path: Path) -> None:
    async with served(tmp_path, a=with_tools("x", x={"before": []})) as one:
        await one.post(HELLO)
        waiting = asyncio.create_task(one.post(calling("x")))
        await until(lambda: one.servers.requests[-1][1] == "tools/call")
        waiting.cancel()
        await until(lambda: one.servers.requests[-1][1] == "notifications/cancelled")


async def test_a_worker_watches_its_socket_and_its_own_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[Any] = []
    watched = SimpleNamespace(
        dump_traceback_later=lambda seconds, **options: steps.append((seconds, options)),
        cancel_dump_traceback_later=lambda: steps.append("off"),
    )
    monkeypatch.setattr(app, "faulthandler", watched)
    monkeypatch.setattr(app, "STATE_SECONDS", 0)

    def is_own() -> bool:
        steps.append("looked at")
        return len(steps) < 5

    def end(reason: str) -> None:
        steps.append(reason)
        watching.cancel()

    monkeypatch.setattr(app, "_end", end)
    part = cast(Any, SimpleNamespace(is_own=is_own))
    watching: asyncio.Task[None] = asyncio.create_task(Worker(part, part, None, part, part).watch())
    with pytest.raises(asyncio.CancelledError):
        await watching
    again = [(app.HANGS_SECONDS, {"exit": True}), "looked at"]
    assert steps == [*again * 3, "something else is at the path of its socket", "off"]


# A process of its own


async def test_a_worker_is_ready_again_when_its_session_is_over(tmp_path: Path) -> None:
    with worker(tmp_path) as (_, socket):
        async with followed(socket) as (http, messages):
            for _ in range(3):
                async with http.post(MCP, json=HELLO, headers=SESSION) as opened:
                    assert opened.status == 200
                async with http.delete(MCP, headers=SESSION) as closed:
                    assert closed.status == 200
                assert [await messages.get(), await messages.get()] == [False, True]


async def answered(http: aiohttp.ClientSession, method: str, **params: Any) -> Any:
    """The result of a request of the session, or its error."""
    message = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}
    async with http.post(MCP, json=message, headers=SESSION) as response:
        answer = await response.json()
    assert (response.status, answer["id"]) == (200, 7)
    return answer.get("result") or answer["error"]


async def test_what_the_servers_have_is_passed_on_and_what_they_have_not_is_an_error(tmp_path: Path) -> None:
    with worker(tmp_path) as (_, socket):
        async with followed(socket) as (http, _):
            async with http.post(MCP, json=HELLO, headers=SESSION) as opened:
                assert opened.status == 200
            tools = (await answered(http, "tools/list"))["tools"]
            assert {"echo", "fails"} < {tool["name"] for tool in tools}
            echo = await answered(http, "tools/call", name="echo", arguments={"text": "é"})
            assert (echo["content"][0]["text"], echo["isError"]) == ("é", False)
            assert (await answered(http, "tools/call", name="fails", arguments={}))["isError"]
            unknown = await answered(http, "tools/call", name="ecko", arguments={})
            assert unknown["data"] == {"type": "unknown_tool"} and "mean 'echo'" in unknown["message"]
            (resource,) = (await answered(http, "resources/list"))["resources"]
            assert resource["uri"] == "odd://page"
            assert (await answered(http, "resources/templates/list"))["resourceTemplates"] == []
            (page,) = (await answered(http, "resources/read", uri="odd://page"))["contents"]
            assert page["text"] == "a page"
            assert "Unknown resource" in (await answered(http, "resources/read", uri="odd://none"))["message"]
            assert (await answered(http, "prompts/list"))["data"] == {"type": "unsupported"}


async def test_a_client_that_listens_hears_what_its_servers_notify_it_of(tmp_path: Path) -> None:
    changed = json.dumps({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
    with worker(tmp_path) as (_, socket):
        async with followed(socket) as (http, _):
            async with http.post(MCP, json=HELLO, headers=SESSION) as opened:
                assert opened.status == 200
            async with http.get(MCP, headers=SESSION) as events:
                # The server's own output is where it speaks to the worker.
                where = {"path": "/proc/self/fd/1", "text": f"{changed}\n"}
                assert not (await answered(http, "tools/call", name="write", arguments=where))["isError"]
                assert await events.content.readline() == b"event: message\n"
                assert await events.content.readline() == f"data: {changed}\n".encode()


async def test_a_worker_that_can_start_no_tools_any_more_does_not_say_that_it_is_ready(
    tmp_path: Path,
) -> None:
    with worker(tmp_path, KILLED_IN_THE_WIPE) as (process, socket):
        async with followed(socket) as (http, messages):
            async with http.post(MCP, json=HELLO, headers=SESSION) as opened:
                assert opened.status == 200
            # A server that ran would be started again at once.
            async with http.post(MCP, json=CRASH, headers=SESSION) as crashed:
                assert (await crashed.json())["error"]["data"]["type"] == "tool_crashed"
            async with http.delete(MCP, headers=SESSION) as closed:
                assert closed.status == 200
            assert [await messages.get(), await messages.get()] == [False, None]
        assert await asyncio.to_thread(process.wait, WITHIN) == EXIT_FOR_RESTART


CANNOT_BE_WIPED = """
from aworld_train.serving.worker import cleaning

def wipe(resources):
    if used:
        raise OSError("out of order")
    used.append(True)

used = []
cleaning.wipe = wipe
"""


@pytest.mark.parametrize(
    ("before", "left"), [("", True), (CANNOT_BE_WIPED, False)], ids=["a file is left", "a wipe that fails"]
)
async def test_a_worker_that_cannot_be_cleaned_ends_itself(
    tmp_path: Path, before: str, left: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    with worker(tmp_path, before) as (process, socket):
        async with followed(socket) as (http, messages):
            async with http.post(MCP, json=HELLO, headers=SESSION) as opened:
                assert opened.status == 200
            if left:
                Path(socket).with_name("left").touch()
            async with http.delete(MCP, headers=SESSION) as closed:
                assert closed.status == 200
            assert [await messages.get(), await messages.get()] == [False, None]
        assert await asyncio.to_thread(process.wait, WITHIN) == EXIT_FOR_RESTART
    assert "This worker ends: it cannot be cleaned: " in capfd.readouterr().err


HANGS = """
import time
from aworld_train.serving.worker import app

app.HANGS_SECONDS = 1.0
app.STATE_SECONDS = 0.2

async def hang(*_):
    time.sleep(600)

app.Worker.delete = hang
"""


async def test_a_worker_that_hangs_ends_itself(tmp_path: Path) -> None:
    with worker(tmp_path, HANGS) as (process, socket):
        async with followed(socket) as (http, _):
            with suppress(aiohttp.ClientError):
                await http.delete(MCP, headers=SESSION)
        assert await asyncio.to_thread(process.wait, WITHIN) != 0


@pytest.mark.parametrize("change", ["removed", "replaced"])
async def test_a_worker_that_cannot_be_reached_at_its_socket_ends_itself(tmp_path: Path, change: str) -> None:
    with worker(tmp_path) as (process, socket):
        async with followed(socket):
            await asyncio.to_thread(Path(socket).unlink)
            if change == "replaced":
                async with await asyncio.start_unix_server(lambda *_: None, socket):
                    assert await asyncio.to_thread(process.wait, WITHIN) == EXIT_FOR_RESTART
        assert await asyncio.to_thread(process.wait, WITHIN) == EXIT_FOR_RESTART
