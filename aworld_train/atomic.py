"""Atomic writes of a file or a whole directory: a reader finds the old content or the new, never a part."""

import fcntl
import glob
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_MIN_ABANDONED_SECONDS = 60.0
"""A younger directory may belong to a process that has not locked it yet."""


def write_text(path: Path, text: str, mode: int = 0o600) -> None:
    """Replace the content of ``path``, with the permissions ``mode``; a crash in between leaves the old file.

    By default only the owner can read it, because records of a run hold tasks, answers and tool results.
    """
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(mode)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


@contextmanager
def replacing(out: Path, check: Callable[[Path], object]) -> Iterator[Path]:
    """A directory to write into, which replaces ``out`` when the block ends without an error.

    Args:
        out: The path to replace, with its links resolved.
        check: Called with ``out`` just before the replacement; raises if it must not be replaced.

    Raises:
        OSError: It cannot be written; the old content of ``out`` is still there.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    _remove_abandoned(out)
    with tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as work, _locked(work):
        new, old = Path(work, "new"), Path(work, "old")
        new.mkdir()
        yield new
        check(out)
        if out.exists():
            out.rename(old)
        try:
            new.rename(out)
        except BaseException:
            if old.exists() and not out.exists():
                old.rename(out)
            raise


def _remove_abandoned(out: Path) -> None:
    """Remove the temporary directories of processes that were killed while they wrote ``out``: these are not locked."""
    for work in out.parent.glob(f".{glob.escape(out.name)}.????????"):
        # A new one may not be locked yet, and one with an ``old`` directory may hold the only copy of the old content.
        with suppress(OSError):
            if (
                Path(work, "new").is_dir()
                and not Path(work, "old").exists()
                and _age(work) > _MIN_ABANDONED_SECONDS
            ):
                with _locked(work, required=True):
                    shutil.rmtree(work)


@contextmanager
def _locked(folder: str | Path, required: bool = False) -> Iterator[None]:
    """Lock the folder against `_remove_abandoned` while the block runs; not all file systems have locks.

    Raises:
        OSError: It cannot be locked and ``required`` is set.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            if required:
                raise
        yield
    finally:
        os.close(descriptor)


def _age(path: Path) -> float:
    return time.time() - path.stat().st_mtime
