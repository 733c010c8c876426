"""Writing so that whoever reads finds the old content or the new, never a part: a file, or a whole directory."""

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


def write_text(path: Path, text: str, mode: int = 0o644) -> None:
    """Replace ``path`` with ``text``, readable as ``mode`` says; a crash in between leaves the old file."""
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
    with tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as work:
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
