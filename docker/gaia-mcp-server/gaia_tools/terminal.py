"""terminal-server: a shell in the session's workspace.

A command ends with all the processes below it when its time is up. What it prints is read to the end and kept from both
ends, so that no amount of output fills the memory.
"""

import asyncio
import contextlib
import os
import signal
import time
from collections import deque
from pathlib import Path
from typing import Annotated, Any

from mcp.server.fastmcp import FastMCP
from mcp.server.fastmcp.exceptions import ToolError
from mcp.types import CallToolResult
from pydantic import Field

from gaia_tools.files import workspace
from gaia_tools.results import MAX_CHARACTERS, OutputFormat, answer

server = FastMCP("terminal-server", log_level="WARNING")
_MOST_SECONDS = 600
_CHUNK = 1 << 16
_AFTER_SECONDS = 0.2  # for what is still in the pipe when the shell has ended
_history: deque[dict[str, Any]] = deque(maxlen=1000)


@server.tool()
async def execute_command(
    command: Annotated[str, Field(description="Shell command (bash), run in the workspace.")],
    timeout: Annotated[
        int, Field(description="Seconds it may take, 600 at most.", ge=1, le=_MOST_SECONDS)
    ] = 30,
    output_format: Annotated[OutputFormat, Field(description="How the result is written.")] = "markdown",
) -> CallToolResult:
    """Run a shell command and return what it printed and its exit code. Files stay until the session ends."""
    began = time.monotonic()
    # A pipe of our own: asyncio would wait for its own ones to be closed, by whatever runs on in the background too.
    ours, theirs = os.pipe()
    try:
        shell = await asyncio.create_subprocess_exec(
            "bash",
            "-c",
            command,
            cwd=workspace(),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        os.close(ours)
        raise ToolError(f"The command could not be started: {error}") from error
    finally:
        os.close(theirs)
    kept = _Kept(MAX_CHARACTERS)
    reading = asyncio.create_task(_read(ours, kept))
    try:
        async with asyncio.timeout(timeout):
            code: int | None = await shell.wait()
        await asyncio.wait({reading}, timeout=_AFTER_SECONDS)
    except TimeoutError:
        code = None
    finally:
        if shell.returncode is None:
            _end(shell.pid)
        reading.cancel()
    seconds = round(time.monotonic() - began, 3)
    result = {
        "command": command,
        "exit_code": code,
        "timed_out": code is None,
        "seconds": seconds,
        "output": kept.text(),
        "characters_left_out": kept.left_out,
    }
    _history.append({name: result[name] for name in ("command", "exit_code", "seconds")})
    ending = f"exit code {code}" if code is not None else f"ended after {timeout} seconds, its time limit"
    text = kept.text() if output_format == "text" else f"```\n{kept.text()}\n```\n{ending}, {seconds} s"
    found = answer(text, result, output_format)
    found.isError = code is None
    return found


@server.tool()
async def get_command_history(
    count: Annotated[int, Field(description="How many, from the last.", ge=1, le=1000)] = 10,
) -> CallToolResult:
    """The commands of this session with their exit codes, the last one last."""
    commands = list(_history)[-count:]
    lines = [f"{one['exit_code']}\t{one['command']}" for one in commands]
    return answer("\n".join(lines) or "No command has been run.", {"commands": commands})


class _Kept:
    """The beginning and the end of a text that may be of any length."""

    def __init__(self, limit: int):
        self._half = limit // 2
        self._head = bytearray()
        self._tail = bytearray()
        self.left_out = 0

    def add(self, chunk: bytes) -> None:
        room = self._half - len(self._head)
        self._head += chunk[:room]
        self._tail += chunk[max(room, 0) :]
        if over := max(len(self._tail) - self._half, 0):
            del self._tail[:over]
            self.left_out += over

    def text(self) -> str:
        between = (
            f"\n[... {self.left_out} bytes left out; redirect to a file and read parts of it ...]\n".encode()
        )
        whole = self._head + (between if self.left_out else b"") + self._tail
        return whole.decode(errors="replace").rstrip("\n")


async def _read(descriptor: int, kept: _Kept) -> None:
    reader = asyncio.StreamReader()
    pipe = os.fdopen(descriptor, "rb")
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), pipe
    )
    try:
        while chunk := await reader.read(_CHUNK):
            kept.add(chunk)
    finally:
        transport.close()


def _end(pid: int) -> None:
    """End a process and all below it, also what has left its process group."""
    parents = {}
    for entry in filter(lambda one: one.name.isdigit(), Path("/proc").iterdir()):
        with contextlib.suppress(OSError):
            stat = (entry / "stat").read_text()
            # From proc_pid_stat(5): the name may hold anything, and ends at the last parenthesis.
            parents[int(entry.name)] = int(stat.rpartition(")")[2].split()[1])
    doomed = {pid}
    while more := {child for child, parent in parents.items() if parent in doomed} - doomed:
        doomed |= more
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    for one in doomed:
        with contextlib.suppress(ProcessLookupError):
            os.kill(one, signal.SIGKILL)
