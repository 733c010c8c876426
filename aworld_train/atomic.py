"""Writing so that whoever reads finds the old content or the new, never a part: a file, or a whole directory."""

import fcntl
import glob
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_SURELY_HELD_AFTER = 60.0  # seconds


def write_text(path: Path, text: str, mode: int = 0o600) -> None:
    """Replace ``path`` with ``text``, readable as ``mode`` says; a crash in between leaves the old file.

    By default only its owner reads it: records of a run hold tasks, answers and what tools said.
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
    """A directory to write into, which takes the place of ``out`` when the block ends without an error.

    Args:
        out: What it becomes, with its links resolved.
        check: Called just before; raises if what is at ``out`` must not be replaced.

    Raises:
        OSError: It cannot be written; what was at ``out`` is still there.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    _remove_abandoned(out)
    with tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as work, _held(work):
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
    """Remove what a process that was killed while it wrote ``out`` has left: nobody holds it any more."""
    for work in out.parent.glob(f".{glob.escape(out.name)}.????????"):
        # One that has just been made is not held yet; one with an old directory may be all that is left of it.
        with suppress(OSError):
            if (
                Path(work, "new").is_dir()
                and not Path(work, "old").exists()
                and _age(work) > _SURELY_HELD_AFTER
            ):
                with _held(work, must=True):
                    shutil.rmtree(work)


@contextmanager
def _held(folder: str | Path, must: bool = False) -> Iterator[None]:
    """The folder held against `_remove_abandoned`, for as long as this process lives; some file systems cannot.

    Raises:
        OSError: It cannot be held and ``must`` be.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            if must:
                raise
        yield
    finally:
        os.close(descriptor)


def _age(path: Path) -> float:
    return time.time() - path.stat().st_mtime
