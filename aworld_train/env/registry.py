"""The process environments of this machine and user: one small file for each, readable by nobody else.

A record outlives the program that wrote it, so that another one can stop what this one started. It is written
whole or not at all, and only under the lock of its name.
"""

import fcntl
import json
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from aworld_train import atomic
from aworld_train.env.record import Credentials, Owner, Record
from aworld_train.errors import EnvironmentFailure, UsageError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", re.ASCII)


def folder() -> Path:
    """Where records and logs are; made, and closed to others, if needed.

    It is ``env`` under ``AWORLD_TRAIN_STATE``, by default under ``~/.local/state/aworld-train``.

    Raises:
        EnvironmentFailure: It cannot be made, or belongs to somebody else.
    """
    path = Path(os.environ.get("AWORLD_TRAIN_STATE") or "~/.local/state/aworld-train").expanduser() / "env"
    try:
        path.mkdir(parents=True, exist_ok=True)
        path.chmod(0o700)
    except OSError as error:
        raise EnvironmentFailure(
            f"The folder {path}, where aworld-train remembers what is up, cannot be used ({error.strerror}); "
            "set AWORLD_TRAIN_STATE to a folder of yours."
        ) from error
    return path.absolute()


def checked(name: str) -> str:
    """``name`` if an environment may be called so.

    Raises:
        UsageError: It may not.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} cannot be the name of an environment: up to 63 letters, digits, '.', '_' and '-', the "
            "first a letter or a digit."
        )
    return name


def record_path(name: str) -> Path:
    """The file of the record."""
    return folder() / f"{checked(name)}.json"


def log_path(name: str) -> Path:
    """The file of what the server writes."""
    return folder() / f"{checked(name)}.log"


def old_log_path(name: str) -> Path:
    """The file of what it wrote before that, if that has become too much for one file."""
    return folder() / f"{checked(name)}.log.1"


def note_revocation(name: str) -> None:
    """Remember that a token of that environment was revoked."""
    _revoked_path(name).touch(mode=0o600)


def take_revocation(name: str) -> bool:
    """Whether a token of that environment was revoked; forgotten from now on."""
    noted = _revoked_path(name).exists()
    _revoked_path(name).unlink(missing_ok=True)
    return noted


def names() -> list[str]:
    """The names that have a record."""
    return sorted(path.stem for path in folder().glob("*.json"))


def read(name: str) -> Record | None:
    """The record of that name, if there is one.

    Raises:
        EnvironmentFailure: There is one, and it cannot be read.
    """
    path = record_path(name)
    try:
        stored = json.loads(path.read_text())
        people = {kind: Owner(**stored[kind]) if stored[kind] else None for kind in ("owner", "starter")}
        return Record(**{**stored, **people, "credentials": Credentials(**stored["credentials"])})
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise EnvironmentFailure(
            f"The record {path} cannot be read; delete it when nothing of {name!r} is running any more."
        ) from error


def write(record: Record) -> None:
    """Store the record, readable by this user only."""
    atomic.write_text(record_path(record.name), json.dumps(asdict(record)), mode=0o600)


def remove(name: str) -> None:
    """Forget the environment; its log stays."""
    record_path(name).unlink(missing_ok=True)


@contextmanager
def locked(name: str, wait: float, report_progress: Callable[[str], None] = lambda _: None) -> Iterator[None]:
    """Be the only one who changes that environment.

    Raises:
        EnvironmentFailure: Somebody else has been changing it for ``wait`` seconds.
    """
    path = folder() / f".{checked(name)}.lock"
    deadline = time.monotonic() + wait
    told = False
    while (descriptor := _lock(path)) is None:
        if time.monotonic() > deadline:
            raise EnvironmentFailure(
                f"Another program has been starting or stopping {name!r} for {wait:.0f} s; try again later."
            )
        if not told:
            report_progress(f"Another program is starting or stopping {name}; waiting for it.")
            told = True
        time.sleep(0.1)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)


def _revoked_path(name: str) -> Path:
    return folder() / f"{checked(name)}.revoked"


def _lock(path: Path) -> int | None:
    """An open descriptor that holds the lock, or None where another one holds it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # The last holder deleted the file: a lock on a file without a name keeps nobody out.
        if path.stat().st_ino == os.fstat(descriptor).st_ino:
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(descriptor)
    return None
