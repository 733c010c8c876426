"""Work on files from anywhere, in a process of its own: what takes too long, needs too much memory, or crashes ends
that process and not the server.

The process is forked, so it has all that is imported already, and what it returns comes back pickled. It and what it
starts are one process group, which ends with it.
"""

import asyncio
import contextlib
import os
import pickle
import resource
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, ParamSpec, TypeVar

from mcp.server.fastmcp.exceptions import ToolError

from gaia_tools.processes import end_with_all_below

SECONDS = 60.0
MEGABYTES = 1024
_CHUNK = 1 << 20

P = ParamSpec("P")
R = TypeVar("R")


async def isolated(
    function: Callable[P, R], *arguments: Any, seconds: float = SECONDS, megabytes: int = MEGABYTES
) -> R:
    """``function(*arguments)``, computed in a process of its own.

    Args:
        function: Takes and returns what can be pickled, and starts no thread before it runs.
        seconds: How long it may take.
        megabytes: How much memory it may take beyond what the server has.

    Raises:
        ToolError: As raised by the function; or it took too long, too much memory, crashed, or raised something else.
    """
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(ours)
        _work(theirs, seconds, megabytes, function, arguments)
    os.close(theirs)
    ended = asyncio.get_running_loop().create_future()
    # Not asyncio's watcher of children: it knows only those that it started.
    threading.Thread(target=_bury, args=(pid, ended), daemon=True).start()
    try:
        async with asyncio.timeout(seconds):
            said = await _read(ours)
            status = await asyncio.shield(ended)
    except TimeoutError:
        raise ToolError(f"It took longer than {seconds:g} seconds and was ended.") from None
    finally:
        if not ended.done():
            end_with_all_below(pid)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)  # what it left running
    if not said:
        raise ToolError(_how_it_ended(status, seconds))
    result, problem = pickle.loads(said)
    if problem is not None:
        raise ToolError(problem)
    return result  # type: ignore[no-any-return]


def _work(
    pipe: int, seconds: float, megabytes: int, function: Callable[..., Any], arguments: tuple[Any, ...]
) -> NoReturn:
    try:
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 0)
        os.dup2(nothing, 1)  # what is written there would be taken for an answer to the client
        _limit(resource.RLIMIT_AS, _memory() + (megabytes << 20))
        # Of all its threads together; it is there for when the server is gone, and nobody looks at the clock.
        _limit(resource.RLIMIT_CPU, int(seconds * (os.cpu_count() or 1)) + 1)
        _limit(resource.RLIMIT_CORE, 0)
        outcome: tuple[Any, str | None]
        try:
            outcome = function(*arguments), None
        except ToolError as error:
            outcome = None, str(error)
        except MemoryError:
            outcome = None, f"It needs more than {megabytes} MB of memory and was ended."
        except RecursionError:
            outcome = None, "It is nested too deeply to be read."
        except Exception as error:
            outcome = None, f"It cannot be read: {type(error).__name__}: {str(error)[:500]}"
        said = memoryview(pickle.dumps(outcome))
        while said:
            said = said[os.write(pipe, said) :]
        os._exit(0)
    finally:
        os._exit(1)


def _limit(what: int, value: int) -> None:
    _, most = resource.getrlimit(what)
    if most != resource.RLIM_INFINITY:
        value = min(value, most)
    resource.setrlimit(what, (value, most))


def _memory() -> int:
    """Address space of this process, in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def _bury(pid: int, ended: "asyncio.Future[int]") -> None:
    _, status = os.waitpid(pid, 0)
    with contextlib.suppress(RuntimeError):  # the loop may be closed
        ended.get_loop().call_soon_threadsafe(_settle, ended, status)


def _settle(ended: "asyncio.Future[int]", status: int) -> None:
    if not ended.done():
        ended.set_result(status)


async def _read(descriptor: int) -> bytes:
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(descriptor, "rb")
    )
    try:
        chunks = []
        while chunk := await reader.read(_CHUNK):
            chunks.append(chunk)
        return b"".join(chunks)
    finally:
        transport.close()


def _how_it_ended(status: int, seconds: float) -> str:
    how = "ended without a result"
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number == signal.SIGXCPU:
            return f"It took longer than {seconds:g} seconds and was ended."
        how = f"crashed ({signal.Signals(number).name})"
    return f"The program that reads it {how}: the file may be damaged, or need too much memory."
