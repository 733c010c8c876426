"""Restores a worker to its state before a session: no process, no file and no shared memory of the session is left.

Each step is verified, and the folders are used as the next session will. Where a check fails, the worker's process ends
and is started again with empty file systems. The spawner loads this as a file: it imports the standard library alone.
"""

import contextlib
import ctypes
import fcntl
import itertools
import os
import signal
import stat
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

_SECONDS = 10.0
_SYSV = ("shm", "msg", "sem")
_TEST_SCRIPT = b"#!/bin/sh\n"
_IPC_RMID = 0
_SECOND = 10**9
_COARSE_CLOCK = 5  # CLOCK_REALTIME_COARSE of linux/time.h, by which the kernel stamps files
# From linux/fs.h; tmpfs has these flags since Linux 6.0.
_GET_FLAGS, _SET_FLAGS = 0x80086601, 0x40086602
_OWNERS_FLAGS = 0x40 | 0x80  # FS_NODUMP_FL, FS_NOATIME_FL


class NotClean(Exception): ...


@dataclass(frozen=True)
class SharedResources:
    """What a session can change where it shares the machine: ``folders``, which are kept empty, and all descendants of
    this process but the ``spared`` pids, those of the worker and its spawner.
    """

    folders: tuple[Path, ...]
    spared: frozenset[int]


def wipe(resources: SharedResources) -> None:
    end_processes(resources)
    clean_folders(resources.folders)
    verify(resources)


def end_processes(resources: SharedResources) -> None:
    _end_all(lambda: _descendants() - resources.spared, _end_each)
    for pid in resources.spared - {os.getpid()}:  # a tool may have stopped it
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def verify(resources: SharedResources) -> None:
    if remaining := _descendants() - resources.spared:
        raise NotClean(f"processes {sorted(remaining)} are left")
    _verify_folders(resources.folders)


def end_all_but(spared: frozenset[int]) -> None:
    """End all other processes of this container but its first one, which the kernel protects."""

    def end(_: Iterable[int]) -> None:
        # One signal to all: the kernel allows no fork meanwhile, so no process can escape it.
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)

    _end_all(lambda: _all_processes() - spared, end)


def clean_container() -> None:
    """Empty the folders of this container that a session can write to, as the user who owns the files, and check that
    the next session can use them.
    """
    folders, queues = container_folders()
    began = time.clock_gettime_ns(_COARSE_CLOCK) // _SECOND * _SECOND  # queues are stamped with whole seconds
    clean_folders(folders)
    for folder in queues:
        empty(folder)
        _touch(folder)
    _verify_folders((*folders, *queues))
    for folder in (*folders, *queues):
        _reset_times(folder, began)
    _remove_system_v()
    for kind in _SYSV:
        # The first line names the columns.
        if len(Path(f"/proc/sysvipc/{kind}").read_text().splitlines()) > 1:
            raise NotClean(f"System V {kind} is left")


def _remove_system_v() -> None:
    libc = ctypes.CDLL(None)
    for kind in _SYSV:
        for line in Path(f"/proc/sysvipc/{kind}").read_text().splitlines()[1:]:
            # The last two arguments are command and buffer, or the number of a semaphore and the command.
            getattr(libc, f"{kind}ctl")(int(line.split()[1]), _IPC_RMID, 0)


def clean_folders(folders: Iterable[Path]) -> None:
    for folder in folders:
        try:
            _restore(folder)
            empty(folder)
            _check_usable(folder)
        except (OSError, subprocess.SubprocessError) as error:
            raise NotClean(f"{folder} cannot be used: {error}") from error


def container_folders() -> tuple[list[Path], list[Path]]:
    """The folders of this container that a session may write to: those in memory, and those of message queues."""
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
    """Whether this user may write there, or may change the mode so that it can."""
    return Path(folder).stat().st_uid == os.geteuid() or os.access(folder, os.W_OK, effective_ids=True)


def _end_all(remaining: Callable[[], set[int]], end: Callable[[set[int]], None]) -> None:
    deadline = time.monotonic() + _SECONDS
    while pids := remaining():
        if time.monotonic() > deadline:
            raise NotClean(f"processes {sorted(pids)} do not end")
        end(pids)
        reap_children()
        if remaining():
            time.sleep(0.002)


def _end_each(pids: Iterable[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def reap_children() -> list[int]:
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
        if remaining := sorted(entry.name for entry in folder.iterdir()):
            raise NotClean(f"{folder} still has {', '.join(remaining[:5])}")


def _restore(folder: Path) -> None:
    """Reset what an owner can change of a mount point itself, but its times, which the wipe still changes."""
    if folder.stat().st_uid != os.geteuid():
        return
    names = []
    with contextlib.suppress(OSError):  # file systems without extended attributes
        names = os.listxattr(folder)
    for name in names:
        if name.startswith(("user.", "system.")):
            os.removexattr(folder, name)
    folder.chmod(stat.S_IRWXU)
    if _flags(folder) & _OWNERS_FLAGS:
        _flags(folder, _flags(folder) & ~_OWNERS_FLAGS)
    if _flags(folder) & _OWNERS_FLAGS or stat.S_IMODE(folder.stat().st_mode) != stat.S_IRWXU:
        raise NotClean(f"{folder} keeps a mode or flags that a session gave it")


def _flags(folder: Path, value: int | None = None) -> int:
    """The flags of its inode, which are set if there is a value; 0 where the file system has none."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if value is not None:
            fcntl.ioctl(descriptor, _SET_FLAGS, struct.pack("=Q", value))
        return int.from_bytes(fcntl.ioctl(descriptor, _GET_FLAGS, bytes(8)), sys.byteorder)
    except OSError:
        return 0
    finally:
        os.close(descriptor)


def _reset_times(folder: Path, began: int) -> None:
    """Set the times of an own folder to 0; those of another user's are of the wipe, which wrote and read it."""
    is_own = folder.stat().st_uid == os.geteuid()
    if is_own:
        os.utime(folder, ns=(0, 0))
    status = folder.stat()
    times = (status.st_atime_ns, status.st_mtime_ns)
    if any(times) if is_own else min(*times, status.st_ctime_ns) < began:
        raise NotClean(f"{folder} has times of a session")


def _touch(folder: Path) -> None:
    file = folder / f".proof-{os.getpid()}"
    file.touch()
    file.unlink()


def _check_usable(folder: Path) -> None:
    script = folder / f".proof-{os.getpid()}"
    script.write_bytes(_TEST_SCRIPT)
    try:
        script.chmod(stat.S_IRWXU)
        if script.read_bytes() != _TEST_SCRIPT:
            raise OSError("what is written there is not what is read")
        if not os.statvfs(folder).f_flag & os.ST_NOEXEC and Path("/bin/sh").exists():
            subprocess.run([script], check=True, timeout=_SECONDS, stdin=subprocess.DEVNULL, env={})
    finally:
        script.unlink()


def empty(folder: Path) -> None:
    """Remove the content of a folder; what cannot be removed stays.

    Nested folders are moved up first: recursion, as in ``shutil.rmtree``, fails at a depth that is made in a moment.
    """
    numbers = itertools.count()
    pending = _entries(folder)
    while pending:
        entry = pending.pop()
        with contextlib.suppress(OSError):
            if entry.is_symlink() or not entry.is_dir():
                entry.unlink()
                continue
            entry.chmod(stat.S_IRWXU)  # its mode may exclude even its owner
            for inner in _entries(entry):
                if inner.is_dir() and not inner.is_symlink():
                    inner.chmod(stat.S_IRWXU)
                    moved = folder / f".wiped-{os.getpid()}-{next(numbers)}"
                    inner.rename(moved)
                    pending.append(moved)
                else:
                    inner.unlink()
            entry.rmdir()


def _entries(folder: Path) -> list[Path]:
    with os.scandir(folder) as found:
        return [Path(entry.path) for entry in found]
