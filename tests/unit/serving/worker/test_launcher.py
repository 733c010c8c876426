"""Every order to the spawner gets its own answer, whatever becomes of those who wait for one."""

import asyncio
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aworld_train.serving.manifest import Manifest, ServerEntry
from aworld_train.serving.worker import launcher
from aworld_train.serving.worker.launcher import CommandPaths, Spawner


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Spawner, socket.socket]]:
    """A worker's side, and the socket at which its orders arrive."""
    worker_end, spawner_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    spawner_end.setblocking(False)

    class NoProcess:
        pid = 1

        def __init__(self, *_: Any, **__: Any) -> None:
            self.returncode = 0

    monkeypatch.setattr(launcher.subprocess, "Popen", NoProcess)
    spawner = Spawner(
        Manifest("m", {"s": ServerEntry(function="m:s")}),
        CommandPaths("python3", Path("/"), Path("/")),
        {},
        (),
    )
    spawner._socket.close()
    worker_end.setblocking(False)
    spawner._socket = worker_end
    yield spawner, spawner_end
    worker_end.close()
    spawner_end.close()


async def test_an_order_given_up_twice_leaves_its_answer_to_no_other(
    ends: tuple[Spawner, socket.socket],
) -> None:
    spawner, spawner_end = ends
    loop = asyncio.get_running_loop()
    first = asyncio.create_task(spawner._order({"number": 1}, []))
    assert json.loads(await loop.sock_recv(spawner_end, 1000)) == {"number": 1}
    # A client that goes cancels its call, and its session, which ends, does so once more.
    for _ in range(2):
        first.cancel()
        await asyncio.sleep(0)
    second = asyncio.create_task(spawner._order({"number": 2}, []))
    await loop.sock_sendall(spawner_end, b'{"answer": 1}')
    assert json.loads(await loop.sock_recv(spawner_end, 1000)) == {"number": 2}
    await loop.sock_sendall(spawner_end, b'{"answer": 2}')
    assert await second == {"answer": 2}
    with pytest.raises(asyncio.CancelledError):
        await first
