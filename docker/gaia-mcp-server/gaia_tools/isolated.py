"""Work on untrusted files in a separate process: if it takes too long, needs too much memory, or crashes, only that
ends.

The process is forked, so it has all imported modules, and its result comes back pickled. It and its children are one
process group.
"""

import asyncio
import contextlib
import os
import pickle
import resource
import signal
import threading
import traceback
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
    """``function(*arguments)``, which can be pickled and starts no thread, computed in a separate process.

    ``megabytes`` is the memory it may take beyond what the server has.
    """
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read_end)
        _work(write_end, seconds, megabytes, function, arguments)
    os.close(write_end)
    ended = asyncio.get_running_loop().create_future()
    # Not asyncio's child watcher, which knows only the processes that asyncio started.
    threading.Thread(target=_reap, args=(pid, ended), daemon=True).start()
    try:
        async with asyncio.timeout(seconds):
            outcome = await _read(read_end)
            status = await asyncio.shield(ended)
    except TimeoutError:
        raise ToolError(f"It took longer than {seconds:g} seconds and was ended.") from None
    finally:
        if not ended.done():
            end_with_all_below(pid)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)  # what it left running
    if not outcome:
        raise ToolError(_how_it_ended(status, seconds))
    result, problem = pickle.loads(outcome)
    if problem is not None:
        raise ToolError(problem)
    return result  # type: ignore[no-any-return]


def _work(
    pipe: int, seconds: float, megabytes: int, function: Callable[..., Any], arguments: tuple[Any, ...]
) -> NoReturn:
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        os.dup2(null, 1)  # the client would read text on standard output as a response
        _limit(resource.RLIMIT_AS, _memory() + (megabytes << 20))
        # Over all its threads together; it ends the process when the server has ended and no longer measures its time.
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
        except ImportError:
            traceback.print_exc()  # for the log of whoever runs the environment
            outcome = None, "This kind of file cannot be read in this environment: use another tool for it."
        except Exception as error:
            traceback.print_exc()
            outcome = None, f"It cannot be read: {str(error)[:500] or 'it is damaged'}"
        remaining = memoryview(pickle.dumps(outcome))
        while remaining:
            remaining = remaining[os.write(pipe, remaining) :]
        os._exit(0)
    finally:
        os._exit(1)


def _limit(kind: int, value: int) -> None:
    _, hard_limit = resource.getrlimit(kind)
    if hard_limit != resource.RLIM_INFINITY:
        value = min(value, hard_limit)
    resource.setrlimit(kind, (value, hard_limit))


def _memory() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def _reap(pid: int, ended: "asyncio.Future[int]") -> None:
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
