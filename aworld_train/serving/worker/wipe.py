"""Bringing a worker back to where it was before a session: no process, no file, nothing shared in memory.

What is done is also looked at: a worker that cannot be seen to be clean says so, and its process ends, so that whoever
runs it starts it anew with empty file systems.
"""

import contextlib
import itertools
import os
import signal
import stat
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_SECONDS = 10.0
_SYSV = ("shm", "msg", "sem")


class NotClean(Exception):
    """Something of a session is left; the text says what."""


@dataclass(frozen=True)
class Ground:
    """What a session can change.

    Attributes:
        folders: Emptied and kept.
        spared: Processes that live on: the worker itself and its spawner.
        whole_machine: Whether every other process belongs to the session, as in a container; else those that descend
            from this process do.
    """

    folders: tuple[Path, ...]
    spared: frozenset[int]
    whole_machine: bool


def wipe(ground: Ground) -> None:
    """End every process of the session and empty its folders.

    Raises:
        NotClean: Something is left.
    """
    _end_processes(ground)
    for folder in ground.folders:
        empty(folder)
    verify(ground)


def verify(ground: Ground) -> None:
    """See that nothing of a session is there.

    Raises:
        NotClean: Something is.
    """
    if left := _processes(ground):
        raise NotClean(f"processes {sorted(left)} are left")
    for folder in ground.folders:
        if kept := sorted(entry.name for entry in folder.iterdir()):
            raise NotClean(f"{folder} still has {', '.join(kept[:5])}")
    if ground.whole_machine:
        for kind in _SYSV:
            # The first line names the columns.
            if len(Path(f"/proc/sysvipc/{kind}").read_text().splitlines()) > 1:
                raise NotClean(f"System V {kind} is left")


def container_folders() -> tuple[Path, ...]:
    """The folders of this container that a session may write to: what is mounted in memory and not read-only."""
    found = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        # From proc_pid_mountinfo(5): id parent device root mount-point options ... - type source super-options
        before, _, after = line.partition(" - ")
        point, options = before.split()[4:6]
        kind = after.split()[0]
        mine = kind in ("tmpfs", "mqueue") and "rw" in options.split(",") and os.access(point, os.W_OK)
        if mine and not point.startswith(("/run/aworld", "/proc", "/sys")) and point != "/dev":
            found.append(Path(point))
    return tuple(found)


def _end_processes(ground: Ground) -> None:
    deadline = time.monotonic() + _SECONDS
    while True:
        if ground.whole_machine:
            # All at once: one that only makes new ones while the old are ended would never be done with otherwise.
            with contextlib.suppress(ProcessLookupError):
                os.kill(-1, signal.SIGSTOP)
        for pid in _processes(ground):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        for pid in ground.spared - {os.getpid()}:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        bury()
        if not _processes(ground):
            return
        if time.monotonic() > deadline:
            raise NotClean(f"processes {sorted(_processes(ground))} do not end")
        time.sleep(0.005)


def bury() -> list[int]:
    """Take note of the children that have ended; their pids."""
    ended = []
    with contextlib.suppress(ChildProcessError):
        while (pid := os.waitpid(-1, os.WNOHANG)[0]) != 0:
            ended.append(pid)
    return ended


def _processes(ground: Ground) -> set[int]:
    everything = {int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()}
    if ground.whole_machine:
        return everything - ground.spared
    return _descendants(everything) - ground.spared


def _descendants(pids: Iterable[int]) -> set[int]:
    parents: dict[int, int] = {}
    for pid in pids:
        with contextlib.suppress(OSError):
            # From proc_pid_stat(5): the name may hold anything, and ends at the last parenthesis.
            parents[pid] = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    found = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {os.getpid()}


def empty(folder: Path) -> None:
    """Remove what is in a folder, whatever it is; what cannot be removed stays.

    Folders in folders are moved up before they are emptied: what recurses, as ``shutil.rmtree`` does, gives up at a
    depth that a program can make in no time.
    """
    numbers = itertools.count()
    pending = _entries(folder)
    while pending:
        entry = pending.pop()
        with contextlib.suppress(OSError):
            if entry.is_symlink() or not entry.is_dir():
                entry.unlink()
                continue
            entry.chmod(stat.S_IRWXU)  # it may have been closed to its own owner
            for inner in _entries(entry):
                if inner.is_dir() and not inner.is_symlink():
                    inner.chmod(stat.S_IRWXU)
                    up = folder / f".wiped-{os.getpid()}-{next(numbers)}"
                    inner.rename(up)
                    pending.append(up)
                else:
                    inner.unlink()
            entry.rmdir()


def _entries(folder: Path) -> list[Path]:
    with os.scandir(folder) as found:
        return [Path(entry.path) for entry in found]
