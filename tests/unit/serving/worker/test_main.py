"""A worker's program: what it hands on of its settings, and what it leaves running when it ends."""

import asyncio
import contextlib
import ctypes
import json
import os
import signal
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import aiohttp
import psutil
import pytest
from aiohttp import web

from aworld_train.serving.channel import derive_secret
from aworld_train.serving.manifest import Manifest, ServerEntry
from aworld_train.serving.worker import __main__ as program
from aworld_train.serving.worker import desktop
from aworld_train.serving.worker.cleaning import ContainerCleaner, ProcessCleaner
from aworld_train.serving.worker.launcher import EXIT_FOR_RESTART, CommandPaths
from tests.environments import HELLO, eventually
from tests.unit.serving.worker.test_app import MCP, SECRET, SESSION, WITHIN, answered, followed, worker
from tests.unit.serving.worker.test_relay import Servers, with_tools

_PR_GET_DUMPABLE, _PR_GET_CHILD_SUBREAPER = 3, 37  # from linux/prctl.h
SETTINGS = {
    "python": "python3",
    "here": "/here",
    "workspace": "/workspace",
    "servers": ["a"],
    "user": {"id": 7, "max_processes": 9},
    "own_user": None,
    "desktop": False,
}
MANIFEST = Manifest(
    "name",
    {
        "a": ServerEntry(command=("a",)),
        "b": ServerEntry(command=("b",)),
        "c": ServerEntry(command=("c",), keys=("MISSING_KEY", "OTHER_KEY")),
    },
)


def in_fork(work: Callable[[], Any]) -> Any:
    """What ``work`` returns in a fork of this process."""
    reading, writing = os.pipe()
    if (pid := os.fork()) == 0:
        try:
            os.write(writing, json.dumps(work()).encode())
        finally:
            os._exit(0)
    os.close(writing)
    os.waitpid(pid, 0)
    with os.fdopen(reading) as file:
        return json.loads(file.read())


# Settings


@pytest.mark.parametrize("has_desktop", [False, True])
@pytest.mark.parametrize("own_user", [None, 8])
def test_the_spawner_is_started_before_the_worker_gives_up_its_rights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_user: int | None, has_desktop: bool
) -> None:
    manifest = tmp_path / "manifest.json"
    manifest.write_text(json.dumps(asdict(MANIFEST)))
    settings = {**SETTINGS, "manifest": str(manifest), "own_user": own_user, "desktop": has_desktop}
    monkeypatch.setenv("AWORLD_WORKER", json.dumps(settings))
    monkeypatch.setenv("AWORLD_EGRESS_PASSWORDS", json.dumps({"a": "secret"}))
    monkeypatch.setenv("OF_THE_WORKER", "value")
    monkeypatch.delenv("DISPLAY", raising=False)

    def run() -> list[Any]:
        steps: list[Any] = []

        def spawner(_: Manifest, paths: Any, variables: Any, chosen: Any, proxies: Any, user: Any) -> None:
            environment = [variables["OF_THE_WORKER"], "DISPLAY" in variables]
            steps.append([paths.fill("{python} {here} {workspace}"), environment, chosen, user])
            steps.append("secret" in proxies["a"]["HTTPS_PROXY"])

        async def serve(*_: object) -> None:
            libc, is_subreaper = ctypes.CDLL(None), ctypes.c_int()
            libc.prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(is_subreaper))
            steps.append([libc.prctl(_PR_GET_DUMPABLE), is_subreaper.value])

        patched = cast(Any, program)  # in a fork
        patched.Spawner, patched._change_user, patched._serve = spawner, steps.append, serve
        program.main()
        return steps

    assert in_fork(run) == [
        ["python3 /here /workspace", ["value", has_desktop], ["a"], SETTINGS["user"]],
        True,
        *([] if own_user is None else [own_user]),
        [0, 1],
    ]


def test_a_worker_of_another_user_has_no_rights_of_this_one() -> None:
    calls: list[Any] = []
    recorded = SimpleNamespace(
        setgroups=lambda groups: calls.append(groups),
        setresgid=lambda *ids: calls.append(("group", *ids)),
        setresuid=lambda *ids: calls.append(("user", *ids)),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(program, "os", recorded)
        program._change_user(7)
    assert calls == [[], ("group", 7, 7, 7), ("user", 7, 7, 7)]


def test_a_server_that_is_off_has_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MISSING_KEY", raising=False)
    monkeypatch.delenv("OTHER_KEY", raising=False)
    reasons = {"b": "left out when it was started", "c": "MISSING_KEY, OTHER_KEY not set"}
    assert program._disabled(MANIFEST, ["a"]) == reasons
    assert program._disabled(MANIFEST, ["a", "b"]) == {"c": reasons["c"]}


def test_a_container_is_cleaned_as_a_whole_and_a_process_of_this_machine_in_its_folders() -> None:
    spawner = cast(Any, SimpleNamespace(pid=7))
    assert isinstance(program._cleaner({"folders": None}, spawner, None), ContainerCleaner)
    cleaner = program._cleaner({"folders": ["/a", "/b"], "socket": "/run/socket"}, spawner, None)
    assert isinstance(cleaner, ProcessCleaner)
    assert cleaner._resources.folders == (Path("/a"), Path("/b"))
    assert cleaner._resources.spared == {os.getpid(), 7}


# A worker


class Starter(Servers):
    """A spawner that starts servers in this process; ``steps`` are what the worker's parts were asked for."""

    pid = 4

    def __init__(self) -> None:
        super().__init__(a=with_tools("x", x={"before": []}))
        self.steps: list[object] = []

    async def ready(self) -> None:
        self.steps.append("spawner is ready")

    async def wipe(self) -> None:
        self.steps.append("wiped")

    async def end_connections(self) -> None:
        self.steps.append("connections ended")

    def kill(self, pid: int, then: Callable[[], None]) -> None:
        self.steps.append(f"server {pid} ended")
        then()

    async def close(self) -> None:
        self.steps += ["spawner closed", signal.getsignal(signal.SIGCHLD)]

    async def start(self) -> None:
        self.steps.append("desktop started")

    async def watch(self, _: object) -> web.Response:
        return web.Response(text="a picture")

    @contextlib.asynccontextmanager
    async def proxy_port(self, socket: str) -> AsyncIterator[object]:
        self.steps.append(f"proxy to {socket}")
        yield self
        self.steps.append("proxy closed")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_worker_serves_until_it_is_told_to_end_and_its_spawner_ends_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    starter, ended = cast(Any, Starter()), list[list[int]]()
    monkeypatch.setattr(program, "proxy_port", starter.proxy_port)
    monkeypatch.setattr(desktop, "Desktop", lambda one: one)
    monkeypatch.setattr(program, "reap_children", lambda: ended.pop())
    monkeypatch.setattr(program, "end_worker", lambda: starter.steps.append("worker ended"))
    monkeypatch.setenv("AWORLD_CHANNEL", derive_secret(SECRET, 0))
    socket = tmp_path / "socket"
    settings = {"socket": str(socket), "servers": ["a"], "egress": "/e", "desktop": True, "folders": None}
    paths = CommandPaths("python3", Path("/here"), Path("/workspace"))
    serving = asyncio.create_task(program._serve(settings, MANIFEST, paths, starter))
    async with followed(str(socket)) as (http, messages):
        for children in ([5], [starter.pid]):
            ended.append(children)
            os.kill(os.getpid(), signal.SIGCHLD)
            assert await asyncio.to_thread(eventually, lambda: not ended)
            assert ("worker ended" in starter.steps) is (children == [starter.pid])
        async with http.get("http://worker/desktop") as picture:
            assert await picture.text() == "a picture"
        async with http.post(MCP, json=HELLO, headers=SESSION) as opened:
            assert opened.status == 200
        calling = asyncio.create_task(answered(http, "tools/call", name="x"))
        assert await asyncio.to_thread(eventually, lambda: starter.requests[-1][1] == "tools/call")
        calling.cancel()  # its client has left
        assert await asyncio.to_thread(eventually, lambda: "cancelled" in starter.requests[-1][1])
        os.kill(os.getpid(), number)
        await asyncio.wait_for(serving, WITHIN)
        assert await messages.get() is None
    wiped = ["wiped", "connections ended"]
    began = ["proxy to /e", "spawner is ready", *wiped, "desktop started", "worker ended"]
    assert starter.steps == [
        *began,
        "server 1 ended",
        *("spawner closed", signal.SIG_DFL),
        "proxy closed",
    ]


async def started(http: aiohttp.ClientSession, command: str) -> int:
    """The pid of what a tool leaves running in the background."""
    command += " >/dev/null 2>&1 & echo $!"
    answer = await answered(http, "tools/call", name="shell", arguments={"command": command})
    return int(answer["content"][0]["text"])


def runs(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


async def test_a_worker_ends_with_what_starts_its_tools(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with worker(tmp_path) as (process, socket):
        async with followed(socket):
            (spawner,) = psutil.Process(process.pid).children()
            spawner.kill()
            assert await asyncio.to_thread(process.wait, WITHIN) == EXIT_FOR_RESTART
    assert "The process that starts tool servers is gone" in capfd.readouterr().err


async def test_what_a_tool_left_running_ends_with_its_session(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with worker(tmp_path) as (process, socket):
        async with followed(socket) as (http, messages):
            async with http.post(MCP, json=HELLO, headers=SESSION) as opened:
                assert opened.status == 200
            orphan = await started(http, "setsid sleep 600")  # of no process of the tool server
            async with http.delete(MCP, headers=SESSION) as closed:
                assert closed.status == 200
            assert [await messages.get(), await messages.get()] == [False, True]
            assert not runs(orphan)
            async with http.post(MCP, json=HELLO, headers=SESSION) as opened:
                assert opened.status == 200
        # It begins to clean up after the session, for its gateway is gone.
        process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(process.wait, WITHIN) == 0
    assert "this worker ends" not in capfd.readouterr().err


WITHOUT_PROXY_AFTER_ANOTHER = """
import json, os
from aworld_train.serving.worker import __main__ as program
from aworld_train.serving.worker import desktop
program.proxy_port = None
os.symlink("nowhere", json.loads(os.environ["AWORLD_WORKER"])["socket"])  # no socket yet, but it is in the way
"""


async def test_what_a_tool_left_running_ends_with_a_worker_of_several_sessions(tmp_path: Path) -> None:
    with worker(tmp_path, WITHOUT_PROXY_AFTER_ANOTHER, sessions=2) as (process, socket):
        async with followed(socket) as (http, _):
            async with http.post(MCP, json=HELLO, headers=SESSION) as opened:
                assert opened.status == 200
            async with http.get("http://worker/state") as state:
                await state.content.readline()
                left = await started(http, "sleep 600")
                while "call" not in (report := json.loads(await state.content.readline())):
                    pass
            assert report["call"][:2] == ["odd", "ok"]
            process.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(process.wait, WITHIN) == 0
        assert await asyncio.to_thread(eventually, lambda: not runs(left), WITHIN)
