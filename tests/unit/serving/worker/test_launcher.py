"""What a worker has its spawner do: every order gets its own answer, whatever becomes of those who wait for one."""

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from aworld_train.serving.manifest import Manifest, ServerEntry
from aworld_train.serving.worker import launcher, spawner
from aworld_train.serving.worker.failures import CallFailure
from aworld_train.serving.worker.launcher import EXIT_FOR_RESTART, CommandPaths, Spawner
from aworld_train.serving.worker.wipe import NotClean
from tests.open_files import open_files

WITHIN = 30.0
USER = {"id": 7, "max_processes": 9}
COMMAND = ServerEntry(
    command=("{python}", "{here}/a.py"), keys=("A_KEY",), optional_keys=("B_KEY", "NOT_SET")
)
FUNCTION = ServerEntry(function="module:serve")
MANIFEST = Manifest(
    "m",
    {
        "command": COMMAND,
        "function": FUNCTION,
        "other": ServerEntry(function="other:serve", keys=("OTHER_KEY",)),
        "left out": ServerEntry(function="left:out"),
    },
)
COMMON = {"PATH": "/bin", "WORKSPACE": "/workspace", "PYTHONUNBUFFERED": "1"}


class EndedWorker(Exception):
    """The worker has ended, with this exit code."""


@dataclass
class Process:
    """In place of the spawner's process: how it was started, and its end of the socket."""

    command: list[str]
    options: dict[str, Any]
    orders: socket.socket
    pid: int = 4
    returncode: int | None = None

    async def order(self) -> tuple[Any, list[int]]:
        """The next order, with its descriptors."""
        data, descriptors, _, _ = await asyncio.to_thread(socket.recv_fds, self.orders, 1 << 16, 3)
        return json.loads(data), descriptors

    def answer(self, answer: Any) -> None:
        self.orders.send(json.dumps(answer).encode())


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Spawner, Process]]:
    """A worker's side, and the process at which its orders arrive."""
    processes: list[Process] = []

    def start(command: list[str], *, pass_fds: list[int], **options: Any) -> Process:
        orders = socket.socket(fileno=os.dup(pass_fds[0]))
        orders.settimeout(WITHIN)
        assert command.pop(3) == str(pass_fds[0])
        processes.append(Process(command, options, orders))
        return processes[0]

    def end(code: int) -> None:
        raise EndedWorker(code)

    monkeypatch.setattr(subprocess, "Popen", start)
    monkeypatch.setattr(os, "_exit", end)
    private = {"AWORLD_CHANNEL": "secret", "PYTHONPATH": "/own", "A_KEY": "a", "B_KEY": "b", "OTHER_KEY": "c"}
    made = Spawner(
        MANIFEST,
        CommandPaths("python3", Path("/here"), Path("/workspace")),
        {"PATH": "/bin", **private},
        ("command", "function", "other"),
        {"command": {"PROXY": "p"}},
        USER,
    )
    yield made, processes[0]
    made._socket.close()
    processes[0].orders.close()


def file_of(descriptor: int) -> Path:
    return Path(f"/proc/self/fd/{descriptor}").readlink()


def test_the_spawner_has_no_secret_and_imports_what_is_chosen(started: tuple[Spawner, Process]) -> None:
    made, process = started
    assert process.command[:3] == ["python3", "-P", spawner.__file__]
    assert [json.loads(process.command[3]), *process.command[4:]] == [USER, "module:serve", "other:serve"]
    assert process.options == {
        "env": {**COMMON, "PYTHONPATH": "/here"},
        "cwd": Path("/here"),
        "stdin": subprocess.DEVNULL,
        "stdout": sys.stderr,
    }
    # Others collect its exit status, so nobody warns that it still runs.
    assert (made.pid, process.returncode) == (4, 0)


async def test_a_server_has_its_own_keys_and_is_private_if_it_has_any(
    started: tuple[Spawner, Process],
) -> None:
    made, process = started
    reading, writing = os.pipe()
    before = open_files()
    secrets = {"A_KEY": "a", "B_KEY": "of the test", "PROXY": "p"}
    for name, entry, environment, order, own in (
        ("command", COMMAND, {"B_KEY": "of the test"}, {"argv": ["python3", "/here/a.py"]}, secrets),
        ("function", FUNCTION, None, {"function": "module:serve"}, {}),
    ):
        spawning = asyncio.create_task(made.spawn(name, entry, reading, writing, environment))
        received, (*streams, variables) = await process.order()
        assert received == {**order, "cwd": "/workspace", "private": bool(own)}
        assert [file_of(one) for one in streams] == [file_of(reading), file_of(writing)]
        assert json.loads(os.read(variables, 1000)) == COMMON | own
        for descriptor in (*streams, variables):
            os.close(descriptor)
        process.answer({"pid": 8})
        assert await spawning == 8
        assert not open_files() - before
    process.answer({"error": "no new process"})
    with pytest.raises(CallFailure, match=r"^function could not be started: no new process$") as failed:
        await made.spawn("function", FUNCTION, reading, writing)
    assert failed.value.kind == "tool_unavailable"
    os.close(reading)
    os.close(writing)


async def test_what_the_spawner_cannot_do_is_an_error_with_its_reason(
    started: tuple[Spawner, Process],
) -> None:
    made, process = started
    process.answer({"ready": True})
    await made.ready()
    process.answer({"error": "no memory"})
    with pytest.raises(CallFailure, match="what servers share could not be imported: no memory") as failed:
        await made.ready()
    assert failed.value.kind == "tool_unavailable"
    process.answer({})
    await made.wipe()
    process.answer({"error": "/tmp still has a file"})
    with pytest.raises(NotClean, match=r"^/tmp still has a file$"):
        await made.wipe()
    process.answer({"ready": True})
    await made.wait_until_idle()
    assert [(await process.order())[0] for _ in range(3)] == [{"wipe": True}, {"wipe": True}, {}]


async def test_a_server_that_is_to_end_is_ended_before_its_input_later_orders_and_the_spawner(
    started: tuple[Spawner, Process],
) -> None:
    made, process = started
    closed: list[int] = []
    made.kill(8, lambda: closed.append(8))
    idle = asyncio.create_task(made.wait_until_idle())
    assert (await process.order())[0] == {"kill": 8}
    assert closed == []
    process.answer({"ready": True})
    assert (await process.order())[0] == {}
    assert closed == [8]
    process.answer({"ready": True})
    await idle
    assert made._killing == set()
    made.kill(9, lambda: closed.append(9))
    closing = asyncio.create_task(made.close())
    assert (await process.order())[0] == {"kill": 9}
    process.answer({"ready": True})
    await closing
    assert closed == [8, 9]
    assert process.orders.recv(1) == b""


@pytest.mark.parametrize(
    ("work", "is_gone"),
    [
        (Spawner.ready, True),
        (Spawner.ready, False),
        (Spawner.wipe, True),
        (Spawner.wipe, False),
        (Spawner.wait_until_idle, True),
    ],
)
async def test_a_worker_whose_spawner_does_not_answer_ends(
    started: tuple[Spawner, Process],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    work: Callable[[Spawner], Awaitable[None]],
    is_gone: bool,
) -> None:
    made, process = started
    if is_gone:
        process.orders.close()
    else:
        monkeypatch.setattr(launcher, "_PRELOAD_SECONDS", 0.01)
        monkeypatch.setattr(launcher, "_WIPE_SECONDS", 0.01)
    with pytest.raises(EndedWorker, match=f"^{EXIT_FOR_RESTART}$"):
        await work(made)
    assert "is gone, or does not answer; this worker ends" in capsys.readouterr().err


async def test_an_order_that_cannot_be_sent_ends_the_worker_and_gets_no_other_s_answer(
    started: tuple[Spawner, Process],
) -> None:
    made, process = started
    process.answer({"ready": True})
    with pytest.raises(EndedWorker):
        await made._order({"longer than a datagram": "x" * (1 << 24)}, [])


async def test_an_order_given_up_twice_leaves_its_answer_to_no_other(
    started: tuple[Spawner, Process],
) -> None:
    made, process = started
    first = asyncio.create_task(made._order({"number": 1}, []))
    assert (await process.order())[0] == {"number": 1}
    # A client that goes cancels its call, and its session, which ends, does so once more.
    for _ in range(2):
        first.cancel()
        await asyncio.sleep(0)
    second = asyncio.create_task(made._order({"number": 2}, []))
    process.answer({"answer": 1})
    assert (await process.order())[0] == {"number": 2}
    process.answer({"answer": 2})
    assert await second == {"answer": 2}
    with pytest.raises(asyncio.CancelledError):
        await first
