"""Makes the Python processes of a run on a machine by forking one that has imported Ray, torch and VeRL.

Each of a run's dozen processes would import these anew, for 7 to 10 seconds of processor time. Ray starts
``fork_client`` where it would start the interpreter; it sends arguments, directory, environment and streams, and ends
as the fork does. The key of the run's queue lets it in.

A fork has what modules read and drew when they were imported. A request with other variables of Python or the dynamic
linker is refused, which starts the interpreter; random generators and torch's threads are set anew; and classes get
their identifiers from the operating system, because Ray's own generator would give all forks the same.
"""

import contextlib
import ctypes
import gc
import hmac
import importlib
import marshal
import os
import runpy
import selectors
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

from aworld_train.adapter.verl import fork_client

PRELOADED = (
    "aworld_train.adapter.verl.task_runner",
    "aworld_train.adapter.verl.worker",
    "aworld_train.adapter.verl.agent_loop",
    "aworld_train.adapter.verl.reward",
    "aworld_train.adapter.verl.sampler",
    "verl.workers.engine_workers",
    "aworld_train.adapter.verl.cpu.registration",
    "aworld_train.adapter.verl.cpu.rollout",
)
"""Modules that import what the processes of a run import."""
Start = Callable[[], None]
_REQUEST_SECONDS = 10.0
_MAX_REQUEST_BYTES = 1 << 24
_READ_BY_INTERPRETER = (b"PYTHON", b"LD_", b"MALLOC_")
"""Variables with these beginnings are read before any code runs."""
_ALLOCATOR_OF_RAY = b"/ray/core/libjemalloc.so"
"""The end of what Ray preloads into its own processes, which work with any allocator."""
_SCRIPT_FLAGS = frozenset({"-u", "-s"})
"""What Ray gives the interpreter before a script."""
_STREAMS, _SIZE_BYTES = 3, 4
_PR_SET_PDEATHSIG = 1  # from linux/prctl.h

_job_id = b""


def run(main: Start, job: int = 1) -> None:
    """Call ``main`` in a fork of this process, beside a fork server that ends with it; or here, if that cannot be."""
    if preload(job):
        address, key = (
            Path(os.environ[name]) for name in (fork_client.ADDRESS_VARIABLE, fork_client.KEY_VARIABLE)
        )
        # Returns in each fork.
        main = ForkServer(address, key).serve(main)
    main()


def preload(job: int = 1) -> bool:
    """Import what the processes of a run import, so that its forks have it.

    ``job`` is which program that joins Ray is the run; workers of others are not forked. Returns False if this process
    must not be forked, because its forks would give their objects the same identifiers.
    """
    # Ray reads these two when it is imported. A worker ends when the process that it takes for the raylet has ended:
    # for forks that is this one, which ends them when the raylet ends.
    global _job_id
    _job_id = f"{job:02x}000000".encode()
    variables = {"RAY_JOB_ID": _job_id.decode(), "RAY_RAYLET_PID": str(os.getpid())}
    os.environ |= variables
    import ray.actor
    from ray._raylet import ActorClassID, getproctitle, setproctitle  # type: ignore[attr-defined]

    for name in variables:
        del os.environ[name]
    # The first title moves the environment out of the memory that titles take.
    setproctitle(getproctitle())

    ray.actor.ActorClassID = SimpleNamespace(
        from_random=lambda: ActorClassID(os.urandom(ActorClassID.size()))
    )
    try:
        for name in PRELOADED:
            importlib.import_module(name)
    finally:
        ray.actor.ActorClassID = ActorClassID
    return _id_of_fork() != _id_of_fork()


def _id_of_fork() -> bytes:
    from ray import ObjectRef

    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(writer, ObjectRef.from_random().binary())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        drawn = pipe.read()
    os.waitpid(pid, 0)
    return drawn


class ForkServer:
    """Forks this process on request; requests begin with the key in the file ``key``."""

    def __init__(self, address: Path, key: Path):
        self._key = key.read_bytes()
        self._read_by_interpreter = _read_by_interpreter(dict(os.environb))
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        address.unlink(missing_ok=True)  # of an earlier start on a node
        self._listener.bind(str(address))
        self._listener.listen()
        # Not epoll, whose state forks would share.
        self._selector = selectors.PollSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._raylet: int | None = None

    def serve(self, main: Start) -> Start:
        """Fork a process for ``main``, and others on request until that one has ended; then end as it did.

        Returns in each fork, and only there, what it is to do.
        """
        gc.collect()
        gc.freeze()  # so that searches for garbage in forks do not copy what they share
        # Whoever ends the run ends all of its processes, and this one waits for them.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        server = os.getpid()
        main_process = self._fork(None)
        if main_process is None:
            _die_with(server)
            return main
        while True:
            # One event at a time: what it changes may be what another is about.
            selected, _ = self._selector.select()[0]
            fork: _Fork | None = selected.data
            if selected.fileobj is self._listener:
                start = self._accept()
                if start is not None:
                    return start
            elif fork is None:
                self._kill_forks(main_process)
            elif selected.fileobj is fork.connection:
                # The client was ended; it would have been the process.
                self._forget(fork)
                signal.pidfd_send_signal(fork.descriptor, signal.SIGKILL)
            else:
                status = self._reap(fork)
                if fork is main_process:
                    sys.stdout.flush()
                    sys.stderr.flush()
                    fork_client.end_as(status)

    def _accept(self) -> Start | None:
        """Serve one request; in the fork, what it is to do."""
        streams: list[int] = []
        with self._listener.accept()[0] as connection:
            connection.settimeout(_REQUEST_SECONDS)
            try:
                head, streams, *_ = socket.recv_fds(connection, len(self._key) + _SIZE_BYTES, _STREAMS)
                program = self._read(connection, head) if len(streams) == _STREAMS else None
                if program is not None:
                    if self._fork(connection) is None:
                        program.enter(streams)
                        return program.run
                    connection.sendall(fork_client.STARTED)
            except OSError:
                pass  # the client has gone, which is an event of its fork, or sends no whole request
            finally:
                for descriptor in streams:
                    os.close(descriptor)
        return None

    def _read(self, connection: socket.socket, head: bytes) -> "_Program | None":
        if not hmac.compare_digest(head[: len(self._key)], self._key):
            return None
        size = int.from_bytes(head[len(self._key) :], "big")
        if size > _MAX_REQUEST_BYTES:
            return None
        content = bytearray()
        while len(content) < size:
            part = connection.recv(size - len(content))
            if not part:
                return None
            content += part
        program = _Program(*marshal.loads(bytes(content)))
        if _read_by_interpreter(program.environment) != self._read_by_interpreter or not program.script():
            return None
        if program.environment.get(b"RAY_JOB_ID", _job_id) != _job_id:
            return None
        if self._raylet is None and (pid := program.environment.get(b"RAY_RAYLET_PID")):
            with contextlib.suppress(ProcessLookupError):
                self._raylet = os.pidfd_open(int(pid))
                self._selector.register(self._raylet, selectors.EVENT_READ)
        return program

    def _kill_forks(self, main_process: "_Fork") -> None:
        assert self._raylet is not None
        self._selector.unregister(self._raylet)
        for selected in self._selector.get_map().values():
            fork = selected.data
            if fork is not None and fork is not main_process and selected.fd == fork.descriptor:
                signal.pidfd_send_signal(fork.descriptor, signal.SIGKILL)

    def _fork(self, connection: socket.socket | None) -> "_Fork | None":
        """Fork, and watch the new process; None in the fork, which has nothing of this server."""
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            for selected in list(self._selector.get_map().values()):
                os.close(selected.fd)
            _renew()
            return None
        fork = _Fork(pid, os.pidfd_open(pid), connection and connection.dup())
        self._selector.register(fork.descriptor, selectors.EVENT_READ, fork)
        if fork.connection is not None:
            self._selector.register(fork.connection, selectors.EVENT_READ, fork)
        return fork

    def _reap(self, fork: "_Fork") -> int:
        _, status = os.waitpid(fork.pid, 0)
        self._selector.unregister(fork.descriptor)
        os.close(fork.descriptor)
        if fork.connection is not None:
            with contextlib.suppress(OSError):
                fork.connection.sendall(status.to_bytes(fork_client.STATUS_BYTES, "big"))
            self._forget(fork)
        return status

    def _forget(self, fork: "_Fork") -> None:
        assert fork.connection is not None
        self._selector.unregister(fork.connection)
        fork.connection.close()
        fork.connection = None


@dataclass(eq=False)
class _Fork:
    pid: int
    descriptor: int
    connection: socket.socket | None


@dataclass(frozen=True)
class _Program:
    arguments: list[str]
    directory: bytes
    environment: dict[bytes, bytes]

    def script(self) -> list[str]:
        rest = list(self.arguments)
        while rest and rest[0] in _SCRIPT_FLAGS:
            del rest[0]
        return rest if rest and not rest[0].startswith("-") else []

    def enter(self, streams: list[int]) -> None:
        from ray._raylet import setproctitle  # type: ignore[attr-defined]

        for number, descriptor in enumerate(streams):
            os.dup2(descriptor, number)
        os.environb.clear()
        os.environb.update(self.environment)
        _set_threads()
        setproctitle(" ".join([sys.executable, *self.arguments]))

    def run(self) -> None:
        """Run the script as the interpreter would; its folder may have gone, which is its own failure."""
        os.chdir(self.directory)
        sys.argv = self.script()
        sys.path.insert(0, str(Path(sys.argv[0]).resolve().parent))
        runpy.run_path(sys.argv[0], run_name="__main__")


def _read_by_interpreter(environment: dict[bytes, bytes]) -> dict[bytes, bytes]:
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(_READ_BY_INTERPRETER)
        and not (name == b"LD_PRELOAD" and value.endswith(_ALLOCATOR_OF_RAY))
    }


def _renew() -> None:
    """Give a fork what a new process has: its own random numbers, and signals that end it."""
    import numpy
    import torch

    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    numpy.random.seed()
    torch.seed()


def _set_threads() -> None:
    """Let torch compute with as many threads as the environment says, which it reads when it is imported."""
    import torch

    threads = os.environ.get("OMP_NUM_THREADS", "")
    if threads.isdecimal():
        torch.set_num_threads(int(threads))


def _die_with(server: int) -> None:
    """End this process when its parent, the fork server, is killed, as Ray's other processes then end."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != server:
        os._exit(1)
