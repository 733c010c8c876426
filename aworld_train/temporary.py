"""Temporary folders that hold a lock file for as long as their process lives, so that those of killed ones are removed.

A folder without the file is never touched: it may be in the making, or be kept for its user to read.
"""

import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

LOCK = ".in-use"
PREFIX = "aworld-"
PARENTS = ("/tmp",)
"""Where folders are beside that for temporary files: the paths of sockets have to be short."""
_held: dict[Path, int] = {}


def make(prefix: str, parent: str | None = None) -> Path:
    folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{prefix}-", dir=parent))
    hold(folder)
    return folder


@contextmanager
def folder_of(prefix: str) -> Iterator[Path]:
    folder = make(prefix)
    try:
        yield folder
    finally:
        remove(folder)


def hold(folder: Path) -> None:
    """Mark a folder as in use until this process ends or calls ``release``."""
    # Locked before it has its name: a lock that nobody holds yet would look like that of a dead process.
    new = folder / f"{LOCK}.new"
    descriptor = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    new.rename(folder / LOCK)
    _held[folder] = descriptor


@contextmanager
def passed_on(folder: Path) -> Iterator[int]:
    """The open file of a folder's mark, for a process that is started in the block: it holds the mark from then on."""
    yield _held[folder]
    os.close(_held.pop(folder))


def release(folder: Path) -> None:
    """Take the mark away: the folder stays until it is removed by name."""
    descriptor = _held.pop(folder, None)
    (folder / LOCK).unlink(missing_ok=True)
    if descriptor is not None:
        os.close(descriptor)


def remove(folder: Path) -> None:
    release(folder)
    shutil.rmtree(folder, ignore_errors=True)


def abandoned(in_use: Callable[[Path], bool] = lambda _: False) -> Iterator[Path]:
    """The folders of this user whose process is dead, and that nothing else has ``in_use``."""
    for parent in dict.fromkeys(Path(name) for name in (tempfile.gettempdir(), *PARENTS)):
        for folder in sorted(parent.glob(f"{PREFIX}*")):
            if is_private(folder) and _was_left(folder / LOCK) and not in_use(folder):
                yield folder


def is_private(folder: Path) -> bool:
    """Whether it is a real folder, not a link, that belongs to this user and that no other user can enter."""
    try:
        status = folder.lstat()
    except OSError:
        return False
    return (
        stat.S_ISDIR(status.st_mode)
        and status.st_uid == os.getuid()
        and stat.S_IMODE(status.st_mode) == 0o700
    )


def _was_left(lock: Path) -> bool:
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True
