"""Atomic writes of a file or a whole directory: a reader finds the old content or the new, never a part."""

import errno
import fcntl
import glob
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from aworld_train.errors import UsageError

_LOCKED_BY_ANOTHER = (errno.EACCES, errno.EAGAIN)
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # linux/fcntl.h, linux/fs.h


def check_writable(folder: Path, holds: str) -> None:
    """Check at once that files can be written below a folder, which need not exist yet."""
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    try:
        tempfile.TemporaryFile(dir=existing).close()
    except OSError as error:
        raise UsageError(
            f"Nothing can be written below {folder}, the folder of {holds}: {existing} answers {error.strerror!r}."
        ) from error


def is_locked(file: Path) -> bool:
    """Whether a process has locked a file; one that is killed loses its lock."""
    try:
        with file.open("rb") as stream:
            fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def sha256_of(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def write_text(path: Path, text: str, mode: int = 0o600) -> None:
    write_bytes(path, text.encode(), mode)


def write_bytes(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Replace the content of ``path``, by default readable for its owner alone; a crash leaves the old file."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
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

    It is the folder ``new`` of a work folder beside ``out``, ``.NAME.xxxxxxxx.partial``, for the caller's temporary
    files too. A lock on ``.NAME.lock`` keeps a second writer out and ends with the process, so a work folder
    that exists when the lock is taken is removed. ``check`` is called with ``out`` just before the replacement. After
    an OSError (another process is writing ``out``, or it cannot be written) its old content is still there.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    with _only_writer(out) as is_locked:
        if is_locked:
            for abandoned in out.parent.glob(f".{glob.escape(out.name)}.????????.partial"):
                _discard(abandoned, out)
        with _work_folder(out) as work:
            new = work / "new"
            new.mkdir()
            yield new
            check(out)
            if out.exists():
                _exchange(new, out, work / "aside")
            else:
                new.rename(out)


@contextmanager
def _only_writer(out: Path) -> Iterator[bool]:
    """Keep other writers of ``out`` away while the block runs; False where the file system has no locks."""
    path = out.parent / f".{out.name}.lock"
    descriptor, is_locked = _lock(path)
    try:
        yield is_locked
    finally:
        # Removed while it is locked: whoever opens the path later makes a new file and locks that.
        path.unlink(missing_ok=True)
        os.close(descriptor)


def _lock(path: Path) -> tuple[int, bool]:
    while True:
        # Opened for writing, because NFS locks no other file.
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in _LOCKED_BY_ANOTHER:
                return descriptor, False
            os.close(descriptor)
            raise OSError(
                errno.EBUSY,
                "another process is writing there now; wait until it has ended, or name another directory",
            ) from None
        # The process that had the lock may have removed the file in between.
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), path.stat()):
                return descriptor, True
        os.close(descriptor)


@contextmanager
def _work_folder(out: Path) -> Iterator[Path]:
    work = Path(tempfile.mkdtemp(prefix=f".{out.name}.", suffix=".partial", dir=out.parent))
    try:
        yield work
    finally:
        try:
            _discard(work, out)
        except BaseException:  # an interrupt in the midst of it
            _discard(work, out)
            raise


def _discard(work: Path, out: Path) -> None:
    """Remove a work folder as far as possible; the only copy of the old content is put back first."""
    aside = work / "aside"
    with suppress(OSError):
        if aside.is_dir() and not out.exists():
            aside.rename(out)
        shutil.rmtree(work)


def _exchange(new: Path, out: Path, aside: Path) -> None:
    """Swap two directories, in one step where the file system can (Linux, most local ones).

    Otherwise ``out`` is missing for a moment, and its old content is ``aside``, where `_discard` finds it.
    """
    if _exchange_at_once(new, out):
        return
    out.rename(aside)
    new.rename(out)
    aside.rename(new)


def _exchange_at_once(left: Path, right: Path) -> bool:
    import ctypes

    try:
        rename = ctypes.CDLL(None).renameat2
    except (AttributeError, OSError):
        return False
    rename.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
    return bool(rename(_AT_FDCWD, os.fsencode(left), _AT_FDCWD, os.fsencode(right), _RENAME_EXCHANGE) == 0)
