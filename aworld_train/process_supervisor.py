"""The process above a program: it leaves nothing running, whatever happens to the program, itself, or the owner.

It starts the program as its child and waits. When the program ends, when the guard is told to stop (SIGTERM or
SIGINT), or when the owner is gone (by SIGKILL too: the owner is looked at, not listened to), it ends every descendant
and then itself. On Linux the program dies with the guard, and descendants that were orphaned become the guard's
children, so that none escapes.

    python -P process_supervisor.py --owner-pid PID --owner-started UNIX_TIME -- COMMAND ...

exits as COMMAND did. With ``--detach LOG`` it first leaves the caller's session, says its own pid on stdout, and
writes what COMMAND prints to LOG; ``--record FILE`` is deleted if the owner goes first. With ``--stdin`` COMMAND reads
what the guard was given to read, and ``--grace SECONDS`` is how long it has between SIGTERM and SIGKILL. ``--remove
FOLDER`` is removed with all that is in it once everything has ended. It imports nothing but the standard library and
psutil.
"""

import argparse
import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import psutil

GRACE = 5.0
"""Seconds between SIGTERM and SIGKILL."""
_INTERVAL = 0.2
_SAME_START = 2.0
"""Seconds two readings of one creation time may differ, where the system's clock was set between them."""
# From linux/prctl.h.
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def find_process(pid: int, started: float) -> psutil.Process | None:
    """The process ``pid`` that was created at ``started`` (Unix time, seconds), or None where it has ended.

    A pid that has come to mean another process is not found; neither is a process that is dead and only waits
    for its parent to notice.
    """
    try:
        process = psutil.Process(pid)
        same = abs(process.create_time() - started) < _SAME_START
        return process if same and process.status() != psutil.STATUS_ZOMBIE else None
    except psutil.NoSuchProcess:
        return None


def started(pid: int) -> float:
    """When a process was created, as `find_process` wants it."""
    return float(psutil.Process(pid).create_time())


def lives(process: psutil.Process) -> bool:
    """Whether ``process`` has not ended; a zombie has."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def main() -> int:
    """Guard one command; the exit code is the command's, or 128 + signal."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--detach", type=Path, metavar="LOG")
    parser.add_argument("--record", type=Path)
    parser.add_argument("--remove", type=Path)
    parser.add_argument("--owner-pid", type=int)
    parser.add_argument("--owner-started", type=float)
    parser.add_argument("--stdin", action="store_true")
    parser.add_argument("--grace", type=float, default=GRACE)
    parser.add_argument("command", nargs="+")
    given = parser.parse_args()
    stopped = _stop_signal()
    if given.detach is not None:
        _detach(given.detach)
    owner = find_process(given.owner_pid, given.owner_started) if given.owner_pid is not None else None
    orphaned = given.owner_pid is not None and owner is None
    status: int | None = None
    if not orphaned:
        program = _start(given.command, None if given.stdin else subprocess.DEVNULL)
        while not (orphaned or stopped() or status is not None):
            status = dict(_buried()).get(program)
            if status is None:
                time.sleep(_INTERVAL)
                orphaned = owner is not None and not lives(owner)
    _end_descendants(given.grace)
    if orphaned and given.record is not None:
        # Nobody is left to take it down, and the record may hold a secret.
        given.record.unlink(missing_ok=True)
    if given.remove is not None:
        shutil.rmtree(given.remove, ignore_errors=True)
    code = 128 + signal.SIGTERM if status is None else os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _detach(log: Path) -> None:
    # The caller waits for this process only, and never gets a dead child to bury.
    if os.fork():
        os._exit(0)
    os.setsid()
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    sys.stdout.write(f"{os.getpid()}\n")
    sys.stdout.flush()
    for stream in (1, 2):
        os.dup2(descriptor, stream)


def _stop_signal() -> Callable[[], bool]:
    """From now on SIGTERM and SIGINT end nothing but make the returned function say True."""
    received: list[int] = []

    def remember(number: int, _: FrameType | None) -> None:
        received.append(number)

    signal.signal(signal.SIGTERM, remember)
    signal.signal(signal.SIGINT, remember)
    return lambda: bool(received)


def _start(command: list[str], stdin: int | None) -> int:
    """Start the program as a child that does not outlive this process; its pid."""
    guard = os.getpid()
    libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
    if libc is not None:
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)

    def die_with_guard() -> None:
        if libc is not None:
            libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            # The guard may have died before the line above; the signal would then never come.
            if os.getppid() != guard:
                os._exit(1)

    # This process has a single thread: preexec_fn is safe, and the death of "the parent thread", which is
    # what the kernel watches, is the death of the guard.
    program = subprocess.Popen(command, stdin=stdin, preexec_fn=die_with_guard)
    # Reaped by `_buried` with all the others.
    program.returncode = 0
    return program.pid


def _buried() -> list[tuple[int, int]]:
    """The children that have ended since the last call, with their wait status."""
    ended: list[tuple[int, int]] = []
    with contextlib.suppress(ChildProcessError):
        while (child := os.waitpid(-1, os.WNOHANG))[0] != 0:
            ended.append(child)
    return ended


def _end_descendants(grace: float) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + grace
        told: set[psutil.Process] = set()
        while (living := _descendants()) and time.monotonic() < deadline:
            for process in living - told:
                with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                    process.send_signal(number)
            told |= living
            time.sleep(0.05)


def _descendants() -> set[psutil.Process]:
    _buried()
    return set(psutil.Process().children(recursive=True))


if __name__ == "__main__":
    sys.exit(main())
