"""Tool environments for tests: real ones, on both backends, and clients to use them with."""

import os
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from mcp import ClientSession
from mcp.client.streamable_http import streamablehttp_client
from mcp.types import CallToolResult, TextContent

from aworld_train.env import EnvConnection, find, status
from aworld_train.env.containers import engine_answers

DIRECTORIES = Path(__file__).parent / "data"
ODD = DIRECTORIES / "odd-environment"
_ODD_PROGRAM = (ODD / "odd.py").read_bytes().hex()
ODD_OF_CLIENT = {
    "odd": {
        "command": "uvx",
        # In hexadecimal digits: sessions look for marks of others in command lines, and not for its source.
        "args": ["--from", "mcp>=1.10.1,<2", "python", "-c", f"exec(bytes.fromhex('{_ODD_PROGRAM}'))"],
        "timeout": 8,
        "test": {"tool": "echo", "arguments": {"text": "here"}, "expect": "here"},
    }
}
"""One of its servers as a desktop client has it, in an image with what that needs."""
REQUIRED = "AWORLD_TRAIN_TESTS_NEED_DOCKER"
"""Set where the absence of an engine is a failure."""


def make_slow_directory(folder: Path, seconds: float, timeout: float = 90) -> Path:
    """An environment whose one tool sleeps for so many seconds by default, and may take ``timeout``."""
    folder.mkdir()
    (folder / "sleeper.py").write_text(
        "import time\n"
        "from mcp.server.fastmcp import FastMCP\n"
        "server = FastMCP('sleeper', log_level='WARNING')\n"
        "@server.tool()\n"
        f"def rest(seconds: float = {seconds}) -> str:\n"
        "    time.sleep(seconds)\n"
        "    return 'rested'\n"
        "server.run()\n"
    )
    (folder / "servers.yaml").write_text(
        "name: slow\n"
        "servers:\n"
        "  sleeper:\n"
        '    command: ["{python}", "{here}/sleeper.py"]\n'
        "    executes_code: false\n"
        f"    timeout: {timeout}\n"
        "    test: {tool: rest, arguments: {}, expect: rested}\n"
    )
    return folder


def need_docker() -> None:
    """Skip the test where there is no Docker engine; fail it where there has to be one."""
    if engine_answers():
        return
    if os.environ.get(REQUIRED):
        pytest.fail(f"no Docker engine answers, and {REQUIRED} is set")
    pytest.skip("no Docker engine answers")


HELLO = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-03-26",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}
HEADERS = {"Accept": "application/json, text/event-stream"}


@asynccontextmanager
async def session(
    connection: EnvConnection, servers: str = "", **options: Any
) -> AsyncIterator[ClientSession]:
    """A session by the official SDK, over HTTP."""
    headers = {"Authorization": f"Bearer {connection.token}", **({"MCP_SERVERS": servers} if servers else {})}
    async with (
        streamablehttp_client(connection.mcp_url, headers=headers) as (read, write, _),
        ClientSession(read, write, **options) as opened,
    ):
        await opened.initialize()
        yield opened


def text_of(result: CallToolResult) -> str:
    """The text of a result that has one part, and is no error."""
    (part,) = result.content
    assert isinstance(part, TextContent)
    assert not result.isError, part.text
    return part.text


async def call(opened: ClientSession, tool: str, **arguments: Any) -> str:
    """The text that a tool answers."""
    return text_of(await opened.call_tool(tool, arguments))


def containers(name: str) -> list[Any]:
    """The containers of an environment, those that have ended too."""
    import docker

    found: list[Any] = docker.from_env().containers.list(
        all=True, filters={"label": f"aworld-train.environment={name}"}, ignore_removed=True
    )
    return found


def parts_on_engine(name: str) -> list[str]:
    """The containers, networks and volumes of an environment, also those that lost their label."""
    import docker

    client = docker.from_env()
    rest = [one.name for kind in (client.networks, client.volumes) for one in kind.list()]
    return [one.name for one in containers(name)] + [
        one for one in rest if one == f"aworld-{name}" or one.startswith(f"aworld-{name}-")
    ]


def all_ready(connection: EnvConnection, within: float = 60.0) -> bool:
    """Whether all workers are ready within so many seconds."""

    def ready() -> bool:
        (now,) = status(connection.name)
        return now.workers.get("ready") == connection.workers

    return eventually(ready, within)


def eventually(holds: Callable[[], object], within: float = 30.0) -> bool:
    """Whether it holds within so many seconds."""
    deadline = time.monotonic() + within
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def sleeps(pid: int, seconds: float = 1.5) -> bool:
    """Whether there is a time of so many seconds in which a process is not woken at all."""

    def is_undisturbed() -> bool:
        before = _switches(pid)
        time.sleep(seconds)
        return _switches(pid) == before

    return eventually(is_undisturbed, within=20.0)


def _switches(pid: int) -> str:
    """How often it has begun to wait, as the kernel writes it."""
    status = Path(f"/proc/{pid}/status").read_text()
    return status.partition("\nvoluntary_ctxt_switches:")[2].split()[0]


def is_listening(address: Path) -> bool:
    """Whether somebody accepts connections at this Unix socket; its file is there a moment before."""
    with socket.socket(socket.AF_UNIX) as client, suppress(OSError):
        client.connect(str(address))
        return True
    return False


def workers(name: str) -> list[psutil.Process]:
    """The workers of an environment of processes."""
    record = find(name)
    assert record is not None
    below = psutil.Process(record.handle["pid"]).children(recursive=True)
    return [one for one in below if one.cmdline()[-2:] == ["-m", "aworld_train.serving.worker"]]
