"""A worker as its gateway sees it: a real one, on a socket of its own."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from aworld_train.env.directory import find_directory
from aworld_train.serving.channel import VARIABLE, Channel, derive_secret
from aworld_train.serving.tokens import new_secret
from aworld_train.serving.worker.launcher import EXIT_FOR_RESTART
from tests.environments import HEADERS, HELLO, ODD, eventually

WITHIN = 120.0
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
    for pid in ground.spared - {os.getpid()}:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    original(ground)

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


@asynccontextmanager
async def followed(socket: str) -> AsyncIterator[tuple[aiohttp.ClientSession, "asyncio.Queue[Any]"]]:
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
        aiohttp.ClientSession(connector=aiohttp.UnixConnector(socket), headers=proof) as http,
    ):
        assert await asyncio.to_thread(eventually, Path(socket).exists, WITHIN)
        following = asyncio.create_task(follow())
        while not await messages.get():
            pass
        yield http, messages
        following.cancel()


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


async def test_a_request_that_belongs_to_no_session_is_refused(tmp_path: Path) -> None:
    async def status(http: aiohttp.ClientSession, method: str, data: str, session: str) -> int:
        headers = {"Mcp-Session-Id": session, **HEADERS}
        async with http.request(method, MCP, data=data, headers=headers) as response:
            assert "message" in (await response.json())["error"]
            return response.status

    hello = json.dumps(HELLO)
    with worker(tmp_path) as (_, socket):
        async with followed(socket) as (http, _):
            assert await status(http, "POST", json.dumps(CRASH), "one") == 404
            assert await status(http, "GET", "", "one") == 404
            assert await status(http, "DELETE", "", "one") == 404
            assert await status(http, "POST", "no JSON", "one") == 400
            assert await status(http, "POST", f"[{hello}]", "one") == 400
            async with http.post(MCP, json=HELLO, headers=SESSION) as opened:
                assert opened.status == 200
            # A worker of one session at a time.
            assert await status(http, "POST", hello, "two") == 503


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


async def test_what_is_of_no_session_is_refused_and_so_is_a_second_session_of_a_worker_for_one(
    tmp_path: Path,
) -> None:
    other = {**SESSION, "Mcp-Session-Id": "two"}
    refused: list[tuple[str, Any, dict[str, str], int]] = [
        ("POST", {"data": b"{"}, SESSION, 400),
        ("POST", {"json": [HELLO]}, SESSION, 400),
        ("POST", {"json": CRASH}, other, 404),
        ("GET", {}, other, 404),
        ("DELETE", {}, other, 404),
        ("POST", {"json": HELLO}, other, 503),
    ]
    with worker(tmp_path) as (_, socket):
        async with followed(socket) as (http, messages):
            async with http.post(MCP, json=HELLO, headers=SESSION) as opened:
                assert opened.status == 200
            for method, body, headers, status in refused:
                async with http.request(method, MCP, headers=headers, **body) as answer:
                    assert answer.status == status
            assert messages.empty(), "it goes on with its session"
            async with http.delete(MCP, headers=SESSION) as closed:
                assert closed.status == 200
            assert [await messages.get(), await messages.get()] == [False, True]
            async with http.post(MCP, json=HELLO, headers=other) as opened:
                assert opened.status == 200


CANNOT_BE_WIPED = """
from aworld_train.serving.worker import cleaning

def wipe(resources):
    raise OSError("out of order")

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


@pytest.mark.parametrize("secret", ["", "another"])
async def test_a_worker_serves_its_gateway_alone(tmp_path: Path, secret: str) -> None:
    with worker(tmp_path) as (_, socket):
        assert await asyncio.to_thread(eventually, Path(socket).exists, WITHIN)
        proof = Channel(secret).request_headers() if secret else {}
        async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(socket)) as http:
            for method, path in (("GET", "state"), ("POST", "mcp"), ("DELETE", "mcp")):
                async with http.request(
                    method, f"http://worker/{path}", headers=proof, json=HELLO
                ) as refused:
                    assert refused.status == 401
