"""The private folder of one start, whose name nobody can guess; it is removed when the start ends.

A file in the run folder holds the name, so that the next start removes the folder of a killed one.
"""

import re
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aworld_train import temporary
from aworld_train.atomic import write_text

RECORD = "private-folder"
"""The file in a run folder that names the private folder of the start under way."""
# Not the folder in TMPDIR, because sockets below it need a short path.
_PARENT = Path("/tmp")
_PREFIX = "aworld-"
_NAME = re.compile(re.escape(_PREFIX) + r"[A-Za-z0-9_-]{16}")
_NAME_BYTES = 12


@contextmanager
def private_folder(run_dir: Path) -> Iterator[Path]:
    """An empty private folder; the folder of an earlier, killed start is removed first."""
    record = run_dir / RECORD
    _remove_recorded(record)
    name = _PREFIX + secrets.token_urlsafe(_NAME_BYTES)
    write_text(record, name)
    private = _PARENT / name
    # Fails if something of that name exists, whoever made it.
    private.mkdir(mode=0o700)
    temporary.hold(private)
    try:
        yield private
    finally:
        temporary.release(private)
        _remove(private)
        record.unlink(missing_ok=True)


def _remove_recorded(record: Path) -> None:
    """Remove the folder that a record names, if it is a private one: anybody may have written a copied record."""
    try:
        name = record.read_text()
    except (OSError, ValueError):
        return
    if _NAME.fullmatch(name) and temporary.is_private(_PARENT / name):
        _remove(_PARENT / name)


def _remove(folder: Path) -> None:
    """Remove a folder that processes which are just ending may still write to."""
    for _ in range(20):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        time.sleep(0.1)
