"""Bringing a worker back to where it was before a session: no process, no file, nothing shared in memory.

What is done is also looked at, and the folders are used, as the next session will use them: a worker that cannot be
seen to be clean and of use says so, and its process ends, so that whoever runs it starts it anew with empty file
systems.

It imports the standard library alone: the spawner loads it as a file.
"""

import contextlib
import itertools
import os
import signal
import stat
import subprocess
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

_SECONDS = 10.0
_SYSV = ("shm", "msg", "sem")
_PROOF = b"#!/bin/sh\n"


class NotClean(Exception):
    """Something of a session is left; the text says what."""


@dataclass(frozen=True)
class SharedResources:
    """What a session can change where it shares the machine with others.

    Attributes:
        folders: Emptied and kept.
        spared: Processes that live on: the worker itself and its spawner. All others that descend from this process
            belong to the session.
    """

    folders: tuple[Path, ...]
    spared: frozenset[int]


def wipe(ground: SharedResources) -> None:
    """End every process of the session and empty its folders.

    Raises:
        NotClean: Something is left.
    """
    end_processes(ground)
    clean_folders(ground.folders)
    verify(ground)


def end_processes(ground: SharedResources) -> None:
    """End every process of the session, and let those that are spared go on.

    Raises:
        NotClean: Some do not end.
    """
    _end(lambda: _descendants() - ground.spared, _end_each)
    for pid in ground.spared - {os.getpid()}:  # a tool may have stopped it
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def verify(ground: SharedResources) -> None:
    """See that nothing of a session is there.

    Raises:
        NotClean: Something is.
    """
    if left := _descendants() - ground.spared:
        raise NotClean(f"processes {sorted(left)} are left")
    _verify_folders(ground.folders)


def end_all_but(spared: frozenset[int]) -> None:
    """End all other processes of this container; the first of its processes cannot be ended this way.

    Raises:
        NotClean: Some do not end.
    """

    def end(_: Iterable[int]) -> None:
        # All at once: the kernel lets none be forked meanwhile, so that nothing can run ahead of it.
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)

    _end(lambda: _all_processes() - spared, end)


def clean_container() -> None:
    """Empty what a session may have written to in this container, and prove that the next one can.

    It is run by the user whose files they are.

    Raises:
        NotClean: Something is left, or a folder is of no use any more.
    """
    folders, queues = container_folders()
    clean_folders(folders)
    for folder in queues:
        empty(folder)
    _verify_folders((*folders, *queues))
    for kind in _SYSV:
        # The first line names the columns.
        if len(Path(f"/proc/sysvipc/{kind}").read_text().splitlines()) > 1:
            raise NotClean(f"System V {kind} is left")


def clean_folders(folders: Iterable[Path]) -> None:
    """Empty folders, and prove by using them that they are as they were.

    Raises:
        NotClean: One cannot be used.
    """
    for folder in folders:
        try:
            _restore(folder)
            empty(folder)
            _prove(folder)
        except (OSError, subprocess.SubprocessError) as error:
            raise NotClean(f"{folder} cannot be used: {error}") from error


def container_folders() -> tuple[list[Path], list[Path]]:
    """Where a session may write in this container: folders mounted in memory, and those of message queues."""
    found: dict[str, list[Path]] = {"tmpfs": [], "mqueue": []}
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        # From proc_pid_mountinfo(5): id parent device root mount-point options ... - type source super-options
        before, _, after = line.partition(" - ")
        point, options = before.split()[4:6]
        kind = after.split()[0]
        reserved = point.startswith(("/run/aworld", "/proc", "/sys")) or point == "/dev"
        if kind in found and "rw" in options.split(",") and not reserved and _is_writable(point):
            found[kind].append(Path(point))
    return found["tmpfs"], found["mqueue"]


def _is_writable(folder: str) -> bool:
    """Whether this user may write there, or may give itself the right to."""
    return Path(folder).stat().st_uid == os.geteuid() or os.access(folder, os.W_OK, effective_ids=True)


def _end(left: Callable[[], set[int]], end: Callable[[set[int]], None]) -> None:
    """End processes until none is left.

    Raises:
        NotClean: Some do not end.
    """
    deadline = time.monotonic() + _SECONDS
    while pids := left():
        if time.monotonic() > deadline:
            raise NotClean(f"processes {sorted(pids)} do not end")
        end(pids)
        bury()
        if left():
            time.sleep(0.002)


def _end_each(pids: Iterable[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def bury() -> list[int]:
    """Take note of the children that have ended; their pids."""
    ended = []
    with contextlib.suppress(ChildProcessError):
        while (pid := os.waitpid(-1, os.WNOHANG)[0]) != 0:
            ended.append(pid)
    return ended


def _all_processes() -> set[int]:
    return {int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()}


def _descendants() -> set[int]:
    parents: dict[int, int] = {}
    for pid in _all_processes():
        with contextlib.suppress(OSError):
            # From proc_pid_stat(5): the name may hold anything, and ends at the last parenthesis.
            parents[pid] = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    found = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {os.getpid()}


def _verify_folders(folders: Iterable[Path]) -> None:
    for folder in folders:
        if kept := sorted(entry.name for entry in folder.iterdir()):
            raise NotClean(f"{folder} still has {', '.join(kept[:5])}")


def _restore(folder: Path) -> None:
    """Undo what the owner of a mount point can do to the mount point itself: its mode, its access lists, its notes."""
    if folder.stat().st_uid != os.geteuid():
        return
    names = []
    with contextlib.suppress(OSError):  # file systems without extended attributes
        names = os.listxattr(folder)
    for name in names:
        if name.startswith(("user.", "system.")):
            os.removexattr(folder, name)
    folder.chmod(stat.S_IRWXU)


def _prove(folder: Path) -> None:
    """Write, read and, where programs may be run, run a file there.

    Raises:
        OSError: It cannot be written, read or run.
        SubprocessError: It does not do what it should.
    """
    proof = folder / f".proof-{os.getpid()}"
    proof.write_bytes(_PROOF)
    try:
        proof.chmod(stat.S_IRWXU)
        if proof.read_bytes() != _PROOF:
            raise OSError(0, "what is written there is not what is read")
        if not os.statvfs(folder).f_flag & os.ST_NOEXEC and Path("/bin/sh").exists():
            subprocess.run([proof], check=True, timeout=_SECONDS, stdin=subprocess.DEVNULL, env={})
    finally:
        proof.unlink()


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
