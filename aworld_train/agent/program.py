"""An agent that is a user-defined program, run once per episode.

It gets the task as one JSON object on stdin and finds its model and tools in environment variables; its answer is the
last line it prints. Of the trainer's variables it inherits only those listed below. It works in a folder of its own,
which is removed when it has ended. It runs under the process supervisor, so no process that it started outlives the
episode, and it is ended when it prints or writes too much.

At most eight programs per processor run at a time in one process: an agent mostly waits for its model, but its start
takes CPU. Waiting for a slot does not count against the program's time limit, only against the caller's.
"""

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from shutil import which
from typing import Any
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from aworld_train import process_supervisor, temporary
from aworld_train.agent import exec_stub
from aworld_train.agent.task import AgentTask, AgentTimedOut, EpisodeContext
from aworld_train.errors import UsageError
from aworld_train.recipe.agent_command import command_fault, executable, look_in
from aworld_train.recipe.env_text import EnvText, shown
from aworld_train.rollout import episode_clock
from aworld_train.rollout.outcome import AgentFailed
from aworld_train.user_code import USER_DIRECTORY_VARIABLE

GRACE = 1.0  # seconds between SIGTERM and SIGKILL
_MAX_TAIL_BYTES = 64 * 1024  # bytes of each stream; an answer cannot be longer
_MAX_OUTPUT_BYTES = 16 * 1024 * 1024  # bytes of one stream, after which the program is ended
_MAX_FOLDER_BYTES = 2 * 1024**3
_FOLDER_SECONDS = 5.0  # between looks at the folder's size
_CHUNK = 64 * 1024
_SHOWN_LINES = 8
_AT_ONCE = 8 * (os.cpu_count() or 1)
# The supervisor's grace period, twice (SIGTERM, SIGKILL), and time to start Python on a busy machine.
_END_SECONDS = 2 * GRACE + 30.0

# The variables that a program inherits: paths, and the network's settings. All others may be secrets of the trainer
# (keys of trackers, of the cluster, of the hub) and are not passed on.
_INHERITED = {
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ"),
    # The interpreter is the trainer's, so the program finds the user's modules as the trainer does.
    *("PYTHONPATH", "VIRTUAL_ENV", "CONDA_PREFIX", "LD_LIBRARY_PATH"),
    # Without these it would use the trainer's processors and GPUs.
    *("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"),
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
    *("http_proxy", "https_proxy", "all_proxy", "no_proxy"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"),
}


class ProgramAgent:
    """The program that ``command`` starts; ``python`` means the current interpreter.

    Arguments of ``python`` from the environment (``EnvText``) are kept off the command line.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str] | None = None):
        self._command = [executable(command), *command[1:]]
        self._name = " ".join(map(shown, self._command))
        self._variables = dict(environment or {})

    async def run(self, task: AgentTask, context: EpisodeContext) -> str:
        async with _slot():
            return await self._run(task, context)

    def check(self) -> None:
        if fault := command_fault(self._command, look=look_in(Path.cwd(), self._variables)):
            raise UsageError(f"agent.command: {' '.join(fault)}")

    async def _run(self, task: AgentTask, context: EpisodeContext) -> str:
        context.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = temporary.make("agent")
        work = folder / "work"
        work.mkdir(mode=0o700)
        try:
            return await self._run_in(work, task, context)
        finally:
            await asyncio.to_thread(temporary.remove, folder)

    async def _run_in(self, folder: Path, task: AgentTask, context: EpisodeContext) -> str:
        name = self._name
        process = await self._start(folder, context)
        output, errors = _Tail(process.stdout), _Tail(process.stderr)
        parts = (_write(process.stdin, _as_json(task, context)), output.read(), errors.read())
        streams = [asyncio.ensure_future(part) for part in parts]
        ended = asyncio.ensure_future(_ended(process, streams))
        size = asyncio.ensure_future(_until_too_large(folder))
        try:
            async with episode_clock.limit(context.seconds):
                await asyncio.wait({ended, size}, return_when=asyncio.FIRST_COMPLETED)
                if not ended.done():
                    size.result()
                code = await ended
        except TimeoutError as error:
            raise AgentTimedOut(
                f"{name}: not done after {context.seconds:g} seconds{errors.shown()}"
            ) from error
        except _LimitExceeded as error:
            raise AgentFailed(f"{name}: it {error}, and was ended") from error
        finally:
            size.cancel()
            await _uninterrupted(_end(process, [ended, *streams]))
        if code:
            raise AgentFailed(f"{name}: {_ending(code)}{errors.shown()}")
        # An empty line is an answer: of a model that says nothing.
        if not output.count:
            raise AgentFailed(f"{name}: it printed no answer{errors.shown()}")
        return output.last_line()

    async def _start(self, folder: Path, context: EpisodeContext) -> asyncio.subprocess.Process:
        name = self._name
        # The supervisor would report it too, but only after starting Python.
        if which(self._command[0]) is None:
            raise AgentFailed(f"{name}: {shown(self._command[0])!r} is not a program that can be run")
        environment = _environment(os.environ, context, self._variables)
        environment |= dict.fromkeys(("AGENT_FOLDER", "TMPDIR"), str(folder))
        command: list[str] = [_from_here(part) for part in self._command]
        if command[1:2] == ["-m"]:
            # A module that is named so is found from where the run began.
            paths = filter(None, [environment.get("PYTHONPATH"), str(Path.cwd())])
            environment["PYTHONPATH"] = os.pathsep.join(paths)
        if any(isinstance(part, EnvText) for part in command):
            program, *arguments = command
            command = [program, exec_stub.__file__, *map(shown, arguments)]
            environment[exec_stub.VARIABLE] = json.dumps(arguments)
        supervised = [
            *(sys.executable, "-P", process_supervisor.__file__, "--stdin", "--grace", str(GRACE)),
            *(f"--owner={process_supervisor.ProcessIdentity.of(os.getpid())}", "--", *command),
        ]
        try:
            return await asyncio.create_subprocess_exec(
                *supervised,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=environment,
                cwd=folder,
                start_new_session=True,
            )
        except OSError as error:
            raise AgentFailed(f"{name}: it could not be started: {error}") from error


class _LimitExceeded(Exception):
    pass


async def _ended(process: asyncio.subprocess.Process, streams: "Sequence[asyncio.Future[None]]") -> int:
    await asyncio.gather(*streams)
    return await process.wait()


async def _until_too_large(folder: Path) -> None:
    while True:
        await asyncio.sleep(_FOLDER_SECONDS)
        if await asyncio.to_thread(_size, folder) > _MAX_FOLDER_BYTES:
            raise _LimitExceeded(f"wrote more than {_MAX_FOLDER_BYTES >> 30} GB into its folder")


def _size(folder: Path) -> int:
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += Path(parent, name).lstat().st_blocks * 512
    return total


def _from_here(part: str) -> str:
    """A part of a command; the name of a file is made absolute, since the program runs in another folder."""
    path = Path(part)
    is_here = not isinstance(part, EnvText) and (path.is_file() or ("/" in part and path.is_dir()))
    return str(path.absolute()) if is_here else part


class _Tail:
    def __init__(self, stream: asyncio.StreamReader | None):
        assert stream is not None
        self._stream = stream
        self._tail = b""
        self.count = 0

    async def read(self) -> None:
        while chunk := await self._stream.read(_CHUNK):
            self.count += len(chunk)
            if self.count > _MAX_OUTPUT_BYTES:
                raise _LimitExceeded(f"printed more than {_MAX_OUTPUT_BYTES} bytes")
            self._tail = (self._tail + chunk)[-_MAX_TAIL_BYTES:]

    def last_line(self) -> str:
        return self._lines()[-1].strip() if self._lines() else ""

    def shown(self) -> str:
        lines = self._lines()[-_SHOWN_LINES:]
        return ".\n" + "\n".join(lines) if lines else ""

    def _lines(self) -> list[str]:
        return [line for line in self._tail.decode("utf-8", "replace").splitlines() if line.strip()]


_slots: "WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore]" = WeakKeyDictionary()


def _slot() -> asyncio.Semaphore:
    # Some callers make an agent object for each episode; those objects share the slots.
    return _slots.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(_AT_ONCE))


def _environment(
    inherited: Mapping[str, str], context: EpisodeContext, variables: Mapping[str, str]
) -> dict[str, str]:
    url, key, model = context.llm_url(None), context.llm_key(None), context.model
    allowed = {
        name: value for name, value in inherited.items() if name in _INHERITED or name.startswith("LC_")
    }
    direct_hosts = [urlsplit(address).hostname or "" for address in (url, context.mcp_url) if address]
    unproxied = ",".join(
        dict.fromkeys([*filter(None, [allowed.get("NO_PROXY") or allowed.get("no_proxy")]), *direct_hosts])
    )
    # The program may import modules from the user's working directory.
    modules = [*filter(None, [allowed.get("PYTHONPATH"), inherited.get(USER_DIRECTORY_VARIABLE)])]
    return {
        **allowed,
        **({"PYTHONPATH": os.pathsep.join(modules)} if modules else {}),
        **variables,
        "OPENAI_BASE_URL": url,
        "OPENAI_API_BASE": url,
        "OPENAI_API_KEY": key,
        "OPENAI_MODEL": model,
        # Anthropic's client adds the version itself.
        "ANTHROPIC_BASE_URL": url.removesuffix("/v1"),
        "ANTHROPIC_API_KEY": key,
        "ANTHROPIC_MODEL": model,
        # AWorld reads these where an agent has no configuration.
        "LLM_PROVIDER": "openai",
        "LLM_BASE_URL": url,
        "LLM_API_KEY": key,
        "LLM_MODEL_NAME": model,
        "AWORLD_LOG_PATH": str(context.folder),
        "MCP_SERVER_URL": context.mcp_url,
        "MCP_SERVER_TOKEN": context.mcp_token,
        "MCP_SERVERS": ",".join(context.mcp_servers),
        "NO_PROXY": unproxied,
        "no_proxy": unproxied,
    }


def _as_json(task: AgentTask, context: EpisodeContext) -> bytes:
    payload = {
        "text": task.text,
        "messages": task.messages,
        "index": task.index,
        "extra": dict(task.extra),
        "seconds": context.seconds,
    }
    return json.dumps(payload, ensure_ascii=False, default=_json_default).encode() + b"\n"


def _json_default(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else str(value)


async def _write(stream: asyncio.StreamWriter | None, payload: bytes) -> None:
    assert stream is not None
    # A program need not read its task.
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        stream.write(payload)
        await stream.drain()
    stream.close()
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        await stream.wait_closed()


async def _end(process: asyncio.subprocess.Process, streams: "Sequence[asyncio.Future[Any]]") -> None:
    for part in streams:
        part.cancel()
    await asyncio.gather(*streams, return_exceptions=True)
    # For asyncio a process ends only when its pipes have been read to their end.
    draining = asyncio.gather(_drain(process.stdout), _drain(process.stderr))
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            async with asyncio.timeout(_END_SECONDS):
                await process.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    # Reading them to the end closes their transports.
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(GRACE):
            await draining


async def _drain(stream: asyncio.StreamReader | None) -> None:
    while stream is not None and await stream.read(_CHUNK):
        pass


async def _uninterrupted(work: Any) -> None:
    """Await ``work`` to its end even if this task is cancelled meanwhile; then raise the cancellation."""
    task = asyncio.ensure_future(work)
    cancelled = False
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            cancelled = True
    if cancelled:
        raise asyncio.CancelledError
    task.result()


def _ending(code: int) -> str:
    # The supervisor reports a signal as shells do; a negative number is the supervisor's own signal.
    number = code - 128 if code > 128 else -code
    return f"it was ended by signal {number}" if number > 0 else f"it ended with code {code}"
