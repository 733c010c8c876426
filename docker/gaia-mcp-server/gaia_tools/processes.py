"""Programs, run to their end or to their time limit, at which they are killed with all their descendants.

Only the beginning and end of their output are stored, so that no amount of it fills the memory. Processes that a
program leaves in the background when it ends continue, and do not delay the result.
"""

import asyncio
import contextlib
import logging
import os
import secrets
import shutil
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mcp.server.fastmcp.exceptions import ToolError

from gaia_tools.results import MAX_CHARACTERS

LIBRARY_VARIABLES = {
    # As many threads as a session has cores. By themselves numerical libraries start one for each core of the machine,
    # which may be more threads than a session may have, and more memory than a program may.
    **dict.fromkeys(
        ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OPENCV_FOR_THREADS_NUM", "LOKY_MAX_CPU_COUNT"), "2"
    ),
    # What libraries will change in later versions is nothing that a program of one call has to know.
    "PYTHONWARNINGS": "ignore::DeprecationWarning",
}
"""Settings for the Python libraries of programs that agents write."""
_CHUNK = 1 << 16
_logger = logging.getLogger(__name__)
_AFTER_SECONDS = 0.2  # for output that is still in the pipe when the program has ended
_ROUNDS = 20
_MARK = "TOOL_CALL"
_drained: set[asyncio.Task[None]] = set()


@dataclass(frozen=True)
class Ended:
    """A program that has ended; ``exit_code`` is None if its time was up, and negative if a signal killed it.

    ``output`` has standard error in it if both are merged; ``left_out`` are bytes omitted from both.
    """

    exit_code: int | None
    output: str
    errors: str
    left_out: int
    seconds: float


def with_own_python(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables with a PATH on which ``python3`` is this interpreter, which has the libraries."""
    path, own = variables.get("PATH", os.defpath), str(Path(sys.executable).parent)
    found = shutil.which("python3", path=path)
    if found is not None and str(Path(found).parent) == own:
        return {**variables}
    return {**variables, "PATH": f"{own}{os.pathsep}{path}"}


async def run(
    command: Sequence[str],
    *,
    cwd: Path,
    seconds: float,
    env: Mapping[str, str] | None = None,
    megabytes: int | None = None,
    merged: bool = False,
    keep: int = MAX_CHARACTERS,
) -> Ended:
    """Run a program without input; ``merged`` puts standard error into the output, in order.

    ``keep`` are bytes kept of the output, and of the errors.
    """
    program = shutil.which(command[0])
    if program is None:
        _logger.error("The program %s is not installed.", command[0])
        raise ToolError(f"This cannot be done in this environment: it has no {command[0]}. Use another tool.")
    mark = secrets.token_hex(16)
    limits = [f"--as={megabytes << 20}", "--core=0"] if megabytes else []
    began = time.monotonic()
    # Not asyncio's pipes: asyncio would wait until background processes close them too.
    pipes = [os.pipe() for _ in range(1 if merged else 2)]
    try:
        process = await asyncio.create_subprocess_exec(
            *(["prlimit", *limits, "--"] if limits else []),
            program,
            *command[1:],
            cwd=cwd,
            env={**(os.environ if env is None else env), _MARK: mark},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=pipes[0][1],
            stderr=pipes[-1][1],
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        for read_end, _ in pipes:
            os.close(read_end)
        raise ToolError(f"{command[0]} could not be started: {error}") from error
    finally:
        for _, write_end in pipes:
            os.close(write_end)
    outputs = [_BoundedText(keep) for _ in pipes]
    reading = {
        asyncio.create_task(_read(read_end, into)) for (read_end, _), into in zip(pipes, outputs, strict=True)
    }
    try:
        async with asyncio.timeout(seconds):
            code: int | None = await process.wait()
    except TimeoutError:
        code = None
        end_with_all_below(process.pid, mark)
        await process.wait()
    finally:
        if process.returncode is None:
            end_with_all_below(process.pid, mark)
    await asyncio.wait(reading, timeout=_AFTER_SECONDS)
    ended = Ended(
        code,
        outputs[0].text(),
        "" if merged else outputs[1].text(),
        sum(one.left_out for one in outputs),
        round(time.monotonic() - began, 3),
    )
    # Continue to read and discard: a background process would end when it prints to a closed pipe.
    for task in (one for one in reading if not one.done()):
        _drained.add(task)
        task.add_done_callback(_drained.discard)
    return ended


def end_with_all_below(pid: int, mark: str = "") -> None:
    """End a leader of a session, all processes of that session, and all below them, also in sessions of their own.

    A process that has left both is found by the value ``mark`` of an environment variable.
    """
    doomed: set[int] = {pid}
    for _ in range(_ROUNDS):  # stopped first, so that none starts another process meanwhile
        for one in doomed:
            _send(one, signal.SIGSTOP)
        if (found := _below(doomed, pid, mark)) == doomed:
            break
        doomed = found
    for one in doomed:
        _send(one, signal.SIGKILL)


def _below(doomed: set[int], session: int, mark: str) -> set[int]:
    processes = {}
    found = set(doomed)
    variable = f"{_MARK}={mark}".encode()
    for entry in filter(lambda one: one.name.isdigit(), Path("/proc").iterdir()):
        with contextlib.suppress(OSError):
            stat = (entry / "stat").read_text(errors="replace")
            # From proc_pid_stat(5): the name may hold anything, and ends at the last parenthesis.
            _, parent, _, of_session = stat.rpartition(")")[2].split()[:4]
            processes[int(entry.name)] = int(parent)
            if int(of_session) == session or (mark and variable in (entry / "environ").read_bytes()):
                found.add(int(entry.name))
    while more := {one for one, parent in processes.items() if parent in found} - found:
        found |= more
    return found


def _send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


class _BoundedText:
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


async def _read(descriptor: int, output: _BoundedText) -> None:
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(descriptor, "rb")
    )
    try:
        while chunk := await reader.read(_CHUNK):
            output.add(chunk)
    finally:
        transport.close()
