"""The parent process of a program: it leaves nothing running, whatever happens to the program, itself, or the owner.

When the program or its owner ends, or the supervisor gets SIGTERM or SIGINT, it ends every descendant and then itself.
On Linux the program dies with the supervisor, and orphaned descendants become its children, so none escapes.

    python -P process_supervisor.py --owner IDENTITY -- COMMAND ...

exits with COMMAND's exit code. ``--detach LOG`` leaves the caller's session, prints its own pid, and writes the output
to LOG; ``--record FILE`` is deleted if the owner ends first; with ``--stdin`` COMMAND inherits the standard input;
``--grace SECONDS`` is the time between SIGTERM and SIGKILL. ``--remove FOLDER`` is deleted once everything has ended,
and so is shared memory that only the descendants used. It imports only the standard library and psutil.
"""

import argparse
import contextlib
import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Self

import psutil

GRACE = 5.0
"""Seconds between SIGTERM and SIGKILL."""
_INTERVAL = 0.2  # between two looks at the owner, on systems that do not tell of its end
_LOOK_SECONDS = 5.0  # between two looks for new shared memory
_MAX_LOOKS = 6
# From linux/prctl.h.
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True)
class ProcessIdentity:
    """A process, told apart from those that get its pid later; as text ``PID STARTED``.

    ``started`` does not move with the system clock: on Linux it is ``BOOT/NAMESPACE/TICKS``, with the PID namespace of
    who asked and the clock ticks since the boot; elsewhere ``unix/SECONDS``.
    """

    pid: int
    started: str

    def __str__(self) -> str:
        return f"{self.pid} {self.started}"

    @classmethod
    def of(cls, pid: int) -> Self:
        """The identity of the process that has this pid now; psutil.NoSuchProcess if none has."""
        if sys.platform != "linux":
            return cls(pid, f"unix/{psutil.Process(pid).create_time()!r}")
        try:
            # The name, in parentheses, may hold spaces; 22 fields are counted from the pid on in proc_pid_stat(5).
            fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            raise psutil.NoSuchProcess(pid) from None
        return cls(pid, f"{_place()}/{fields[22 - 3]}")

    @classmethod
    def read(cls, text: str) -> Self:
        """The identity in a text; ValueError if there is none."""
        pid, started = text.split()
        if "/" not in started:
            raise ValueError(f"{started!r} says no start")
        return cls(int(pid), started)

    def find(self) -> psutil.Process | None:
        """The process; None where it has ended, also as a zombie."""
        try:
            process = psutil.Process(self.pid)
            is_same = ProcessIdentity.of(self.pid) == self
            return process if is_same and process.status() != psutil.STATUS_ZOMBIE else None
        except psutil.NoSuchProcess:
            return None

    @property
    def is_elsewhere(self) -> bool:
        """Whether it was started since the boot in another PID namespace, a container's: nobody here can find it."""
        place, own = self.started.rpartition("/")[0], _place()
        return place != own and place.partition("/")[0] == own.partition("/")[0]


def _place() -> str:
    if sys.platform != "linux":
        return "unix"
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:  # some sandboxes have no such file
        boot = "unknown"
    return f"{boot}/{Path('/proc/self/ns/pid').stat().st_ino}"


def lives(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def main() -> int:
    """Returns the command's exit code, or 128 + signal."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--detach", type=Path, metavar="LOG")
    parser.add_argument("--record", type=Path)
    parser.add_argument("--remove", type=Path)
    parser.add_argument("--owner", type=ProcessIdentity.read, metavar="IDENTITY")
    parser.add_argument("--stdin", action="store_true")
    parser.add_argument("--grace", type=float, default=GRACE)
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    signals = SignalWait(signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)
    if options.detach is not None:
        _detach(options.detach)
    owner = options.owner.find() if options.owner is not None else None
    orphaned = options.owner is not None and owner is None
    status: int | None = None
    shared = SharedMemory()
    if not orphaned:
        program = _start(options.command, None if options.stdin else subprocess.DEVNULL)
        owners_end = open_end(options.owner) if owner is not None else None
        seconds = _LOOK_SECONDS if owner is None or owners_end is not None else _INTERVAL
        while not (orphaned or signals.received & {signal.SIGTERM, signal.SIGINT} or status is not None):
            status = dict(_reap()).get(program)
            if status is None:
                signals.wait(seconds, owners_end)
                orphaned = owner is not None and not lives(owner)
                shared.look_now_and_then()
    shared.look()
    _end_descendants(options.grace)
    shared.remove()
    if orphaned and options.record is not None:
        # No owner is left to delete the record, and it may hold a secret.
        options.record.unlink(missing_ok=True)
    if options.remove is not None:
        shutil.rmtree(options.remove, ignore_errors=True)
    code = 128 + signal.SIGTERM if status is None else os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _detach(log: Path) -> None:
    # The caller waits only for this process; the fork is not its child, so it never has to reap it.
    if os.fork():
        os._exit(0)
    os.setsid()
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    sys.stdout.write(f"{os.getpid()}\n")
    sys.stdout.flush()
    for stream in (1, 2):
        os.dup2(descriptor, stream)


class SignalWait:
    def __init__(self, *numbers: int):
        self.received: set[int] = set()
        self._reader, writer = os.pipe()
        for descriptor in (self._reader, writer):
            os.set_blocking(descriptor, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        for number in numbers:
            signal.signal(number, self._record)

    def wait(self, seconds: float, other: int | None = None) -> None:
        """Wait until a signal has come since the last call, or the file ``other`` can be read, or the time is over."""
        select.select([self._reader] if other is None else [self._reader, other], [], [], seconds)
        with contextlib.suppress(BlockingIOError):
            os.read(self._reader, 1024)

    def _record(self, number: int, _: FrameType | None) -> None:
        self.received.add(number)


def open_end(identity: ProcessIdentity) -> int | None:
    """A file that can be read once a process has ended; None where there are no such files."""
    try:
        return os.pidfd_open(identity.pid)
    except (AttributeError, OSError):
        return None


def _start(command: list[str], stdin: int | None) -> int:
    """Start the program as a child that does not outlive this process; its pid."""
    supervisor = os.getpid()
    libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
    if libc is not None:
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)

    def die_with_supervisor() -> None:
        if libc is not None:
            libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            # The supervisor may have died before the line above; the signal would then never come.
            if os.getppid() != supervisor:
                os._exit(1)

    # This process has a single thread: preexec_fn is safe, and the death of "the parent thread", which is
    # what the kernel watches, is the death of the supervisor.
    program = subprocess.Popen(command, stdin=stdin, preexec_fn=die_with_supervisor)
    # Reaped by `_reap` with all the others.
    program.returncode = 0
    return program.pid


def _reap() -> list[tuple[int, int]]:
    """The children that have ended since the last call, with their wait status."""
    ended: list[tuple[int, int]] = []
    with contextlib.suppress(ChildProcessError):
        while (child := os.waitpid(-1, os.WNOHANG))[0] != 0:
            ended.append(child)
    return ended


class SharedMemory:
    """POSIX shared memory of the descendants, which stays in /dev/shm when they are killed; seen in what they map."""

    def __init__(self, folder: Path = Path("/dev/shm")):
        self._folder = folder
        self._known = self._names()
        self._looks: dict[str, int] = {}
        self._own: set[str] = set()
        self._next = 0.0

    def look_now_and_then(self) -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _LOOK_SECONDS
            self.look()

    def look(self) -> None:
        """Find out which new names the descendants have mapped; after some looks a name counts as another program's."""
        new = {name for name in self._names() - self._known if self._looks.get(name, 0) < _MAX_LOOKS}
        if not new:
            return
        # Not by `_descendants`, which would take the program's exit code.
        descendants = psutil.Process().children(recursive=True)
        found = {name for process in descendants for name in self._mapped(process.pid)} & new
        self._own |= found
        self._known |= found
        for name in new - found:
            self._looks[name] = self._looks.get(name, 0) + 1

    def remove(self) -> None:
        """Remove what the descendants had mapped and no living process has."""
        own = self._own & self._names()
        if own:
            used = {name for pid in psutil.pids() for name in self._mapped(pid)}
            for name in own - used:
                with contextlib.suppress(OSError):
                    (self._folder / name).unlink()

    def _names(self) -> set[str]:
        try:
            return {path.name for path in self._folder.iterdir()}
        except OSError:
            return set()

    def _mapped(self, pid: int) -> set[str]:
        """The names that a process has mapped; none of one that has ended or is another user's."""
        try:
            lines = Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines()
        except OSError:
            return set()
        begin = f"{self._folder}/"
        return {line.partition(begin)[2] for line in lines if begin in line}


def _end_descendants(grace: float) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + grace
        signalled: set[psutil.Process] = set()
        while (living := _descendants()) and time.monotonic() < deadline:
            for process in living - signalled:
                with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                    process.send_signal(number)
            signalled |= living
            time.sleep(0.05)


def _descendants() -> set[psutil.Process]:
    _reap()
    return set(psutil.Process().children(recursive=True))


if __name__ == "__main__":
    sys.exit(main())
