"""Python programs in forks of an interpreter that has imported what they import.

A program of a test would otherwise spend one to five seconds of processor time on imports. Where its start is what is
tested, it is started by ``subprocess``. `start` begins the interpreters, which end with the last process of the tests:
one for the command line and servers; one with tokenizers and without torch, for what the command line starts by
``module_process``; one with VeRL; and one with what VeRL imports but without VeRL, which decides at its import what it
computes on. Each fork has its own arguments, environment, folder, streams and session, and ends like a process
that was started.
"""

import contextlib
import gc
import importlib
import marshal
import os
import runpy
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

STAND_IN_VARIABLE = "AWORLD_TRAIN_TESTS_PYTHON"
"""The environment variable with the program that stands in for Python where tokenizers are loaded."""
PROGRAMS, VERL, LIBRARIES, TOKENIZERS = "programs", "verl", "libraries", "tokenizers"
_COMMAND_LINE = """
    aworld_train.cli.main aworld_train.cli.train aworld_train.adapter.verl.framework
    aworld_train.adapter.episodes.play_single aworld_train.training.agent_trainer aworld_train.training.run
    aworld_train.dataset.builder aworld_train.env aworld_train.launch aworld_train.store.tables
    aiohttp.web anyio._backends._asyncio httpcore httpx jinja2.sandbox sqlite3 uvicorn
    matplotlib.backends.backend_agg matplotlib.figure pyarrow.compute pyarrow.parquet
    mcp.client.streamable_http mcp.server.fastmcp mcp.server.streamable_http_manager
"""
_PRELOADED = {
    PROGRAMS: _COMMAND_LINE,
    VERL: f"{_COMMAND_LINE} aworld_train.adapter.verl.single_model aworld_train.adapter.verl.cpu.server",
    LIBRARIES: """
        accelerate datasets fastapi hydra peft ray tensordict torch.distributed.fsdp transfer_queue
        transformers.models.auto.modeling_auto uvicorn
    """,
    TOKENIZERS: """
        aworld_train.adapter.episodes.files aworld_train.adapter.episodes.first_prompt
        aworld_train.adapter.episodes.play_single aworld_train.rollout.template_proof
        anyio._backends._asyncio pyarrow.parquet transformers.models.auto.tokenization_auto
    """,
}
_READ_AT_IMPORT = (
    *("PYTHON", "LD_", "MALLOC_", "LANG", "LC_", "TZ", "MPL", "OMP_", "OPENBLAS_"),
    *("FORCE_COLOR", "NO_COLOR", "TERM", "COLUMNS", "LINES"),
)
_READ_BY_LIBRARIES = ("CUDA_", "HF_", "RAY_", "TORCH", "TRANSFORMERS_", "VLLM_")
_READ_BY = {
    PROGRAMS: _READ_AT_IMPORT,
    TOKENIZERS: _READ_AT_IMPORT,
    LIBRARIES: _READ_AT_IMPORT + _READ_BY_LIBRARIES,
    VERL: (*_READ_AT_IMPORT, *_READ_BY_LIBRARIES, "VERL_"),
}
"""A program whose variables with these beginnings are others is started as usual."""
_SIZE_BYTES = _NUMBER_BYTES = 4
_START_SECONDS, _END_SECONDS, _POLL_SECONDS = 120.0, 30.0, 0.001

_addresses: dict[str, str] = {}
_owners: "list[subprocess.Popen[bytes]]" = []


def start(*kinds: str) -> None:
    """Begin the interpreters, for this process and its forks; they import while these go on."""
    if TOKENIZERS not in _addresses:
        _addresses[TOKENIZERS] = _begin(TOKENIZERS)
        os.environ[STAND_IN_VARIABLE] = stand_in(TOKENIZERS)
    for kind in kinds or (PROGRAMS,):
        if kind not in _addresses:
            _addresses[kind] = _begin(kind)


def stand_in(kind: str) -> str:
    """The path of a program that does in a fork what Python does with the same arguments and streams."""
    start(kind)
    return str(Path(_addresses[kind]).with_name("python"))


def _begin(kind: str) -> str:
    """Begin an interpreter; returns the path of its socket."""
    folder = Path(tempfile.mkdtemp(prefix="warm-"))
    address = folder / "socket"
    python = address.with_name("python")
    python.touch(mode=0o700)
    asking = [sys.executable, "-I", "-S", __file__, str(address)]
    python.write_text(f'#!/bin/sh\nexec {shlex.join(asking)} "$@"\n')
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(address))
    listener.listen(128)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(
            [sys.executable, "-P", __file__, kind, str(listener.fileno())],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            cwd=folder,
            env=environment,
            pass_fds=[listener.fileno()],
            start_new_session=True,
        )
    listener.close()
    _owners.append(server)
    return str(address)


class Program:
    """A fork that runs a program: what ``subprocess.Popen`` is for a process that was started."""

    def __init__(
        self,
        address: str,
        arguments: list[str],
        streams: list[int],
        cwd: Path | str | None,
        env: Mapping[str, str],
    ):
        self.args = arguments
        self.returncode: int | None = None
        self._connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._connection.settimeout(_START_SECONDS)
        request = marshal.dumps((arguments, str(cwd or Path.cwd()), dict(env)))
        try:
            self._connection.connect(address)
            socket.send_fds(self._connection, [len(request).to_bytes(_SIZE_BYTES, "big")], streams)
            self._connection.sendall(request)
            pid = self._connection.recv(_NUMBER_BYTES)
        except ConnectionError:
            pid = b""
        assert pid, f"the interpreter was ended: {Path(address).with_name('log').read_text()}"
        self.pid = int.from_bytes(pid, "big")

    def wait(self, timeout: float | None = None) -> int:
        """As of ``Popen``."""
        if self.returncode is None:
            self._connection.settimeout(timeout)
            try:
                status = self._connection.recv(_NUMBER_BYTES)
            except TimeoutError:
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0) from None
            self._connection.close()
            # Whoever tells of the end may have been killed; then none is known, and it was not a good one.
            self.returncode = (
                os.waitstatus_to_exitcode(int.from_bytes(status, "big")) if status else -signal.SIGKILL
            )
        return self.returncode

    def send_signal(self, number: int) -> None:
        """As of ``Popen``."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def kill(self) -> None:
        """As of ``Popen``."""
        if self.returncode is None:
            self.send_signal(signal.SIGKILL)


def popen(
    *arguments: str,
    stdout: int | IO[Any] = subprocess.DEVNULL,
    stderr: int | IO[Any] = subprocess.DEVNULL,
    cwd: Path | str | None = None,
    env: Mapping[str, str] | None = None,
    kind: str = PROGRAMS,
) -> "Program | subprocess.Popen[bytes]":
    """Run the interpreter's arguments (a script, ``-m`` or ``-c``); its output goes to files or ``DEVNULL``."""
    start(kind)
    environment = dict(os.environ if env is None else env)
    if _read_at_import(environment, kind) != _read_at_import(os.environ, kind):
        return subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            cwd=cwd,
            env=environment,
        )
    with Path(os.devnull).open("r+b", buffering=0) as nothing:
        given = (nothing if stream == subprocess.DEVNULL else stream for stream in (nothing, stdout, stderr))
        streams = [stream if isinstance(stream, int) else stream.fileno() for stream in given]
        return Program(_addresses[kind], list(arguments), streams, cwd, environment)


class Started:
    """A program whose output is kept: what tests use of ``subprocess.Popen`` with pipes and text."""

    def __init__(self, *arguments: str, cwd: Path | str, env: Mapping[str, str]):
        self._streams = [tempfile.TemporaryFile() for _ in range(2)]  # noqa: SIM115
        self._program = popen(*arguments, stdout=self._streams[0], stderr=self._streams[1], cwd=cwd, env=env)
        self.pid, self.wait, self.kill = self._program.pid, self._program.wait, self._program.kill
        self.send_signal = self._program.send_signal

    @property
    def returncode(self) -> int | None:
        """As of ``Popen``."""
        return self._program.returncode

    def poll(self) -> int | None:
        """As of ``Popen``."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(_POLL_SECONDS)
        return self.returncode

    def communicate(self, timeout: float | None = None) -> list[str]:
        """As of ``Popen``, and again at any time after it."""
        self.wait(timeout)
        for stream in self._streams:
            stream.seek(0)
        return [stream.read().decode().replace("\r\n", "\n") for stream in self._streams]


def run(
    *arguments: str,
    timeout: float,
    cwd: Path | str | None = None,
    env: Mapping[str, str] | None = None,
    check: bool = False,
    kind: str = PROGRAMS,
) -> "subprocess.CompletedProcess[str]":
    """As ``subprocess.run`` of the interpreter with these arguments, without input and with its output as text."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        program = popen(*arguments, stdout=out, stderr=err, cwd=cwd, env=env, kind=kind)
        try:
            code = program.wait(timeout)
        except BaseException:
            program.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                program.wait(_END_SECONDS)
            program.kill()
            raise
        printed = []
        for stream in (out, err):
            stream.seek(0)
            printed.append(stream.read().decode().replace("\r\n", "\n"))
    done = subprocess.CompletedProcess([sys.executable, *arguments], code, *printed)
    if check:
        done.check_returncode()
    return done


def _read_at_import(environment: Mapping[str, str], kind: str) -> dict[str, str]:
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(_READ_BY[kind]) and name != "PYTHONPATH"
    }


def _stand_in(address: str, arguments: list[str]) -> None:
    """Have a fork do what these arguments say, and end as it does."""
    code = Program(address, arguments, [0, 1, 2], None, os.environ).wait()
    if code < 0:
        if code != -signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def _serve(kind: str, listener: socket.socket) -> Callable[[], None]:
    """Fork on request for as long as somebody holds the other end of standard input.

    Returns:
        What this process, the server or a fork, is to do then.
    """
    if kind == TOKENIZERS:
        from aworld_train.model.turns import leave_out_torch

        leave_out_torch()
    for name in _PRELOADED[kind].split():
        importlib.import_module(name)
    if kind != TOKENIZERS:
        module_process = importlib.import_module("aworld_train.module_process")
        vars(module_process)["sys"] = types.SimpleNamespace(executable=os.environ[STAND_IN_VARIABLE])
    gc.collect()
    gc.freeze()  # so that searches for garbage in forks do not copy what they share
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    owners = sys.stdin.fileno()
    while True:
        ready, _, _ = select.select([listener, owners], [], [])
        if owners in ready:
            return lambda: shutil.rmtree(Path.cwd())
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            program = _fork(connection)
            if program is not None:
                return program
            os._exit(0)
        connection.close()


def _fork(connection: socket.socket) -> Callable[[], None] | None:
    """Fork once more, for the program; this process tells of its begin and its end."""
    head, streams, *_ = socket.recv_fds(connection, _SIZE_BYTES, 3)
    size, content = int.from_bytes(head, "big"), bytearray()
    while len(content) < size:
        content += connection.recv(size - len(content))
    arguments, folder, environment = marshal.loads(bytes(content))
    pid = os.fork()
    if pid == 0:
        connection.close()
        for number, descriptor in enumerate(streams):
            os.dup2(descriptor, number)
            os.close(descriptor)
        os.setsid()
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        return lambda: _run(arguments)
    for descriptor in streams:
        os.close(descriptor)
    connection.sendall(pid.to_bytes(_NUMBER_BYTES, "big"))
    _, status = os.waitpid(pid, 0)
    with contextlib.suppress(OSError):  # nobody waits for it any more
        connection.sendall(status.to_bytes(_NUMBER_BYTES, "big"))
    return None


def _run(arguments: list[str]) -> None:
    """Do what the interpreter does with these arguments."""
    from numpy.random import seed

    seed()
    path = [one for one in os.environ.get("PYTHONPATH", "").split(os.pathsep) if one]
    is_safe = arguments[0] == "-P"
    arguments = arguments[is_safe:]
    if arguments[0] in ("-m", "-c"):
        kind, what, *given = arguments
        beside = str(Path.cwd()) if kind == "-m" else ""
    else:
        kind, what, given = "", arguments[0], arguments[1:]
        beside = str(Path(what).resolve().parent)
    sys.path[:0] = path if is_safe else [beside, *path]
    importlib.invalidate_caches()
    sys.argv = ["-c" if kind == "-c" else what, *given]
    if kind == "-m":
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    elif kind == "-c":
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(what, "<string>", "exec"), main.__dict__)
    else:
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        main.__file__ = what
        exec(compile(Path(what).read_bytes(), what, "exec"), main.__dict__)


if __name__ == "__main__":
    if sys.argv[1] in _PRELOADED:
        _serve(sys.argv[1], socket.socket(fileno=int(sys.argv[2])))()
    else:
        _stand_in(sys.argv[1], sys.argv[2:])
