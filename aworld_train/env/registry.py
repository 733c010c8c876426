"""The process environments of this machine and user: one small file for each, which no other user can read.

A record is written as a whole or not at all, and only under the lock of its name.
"""

import contextlib
import fcntl
import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from aworld_train import atomic, temporary
from aworld_train.env.record import Credentials, Record
from aworld_train.errors import EnvironmentFailure, UsageError
from aworld_train.process_supervisor import ProcessIdentity
from aworld_train.serving.worker.wipe import empty

_LOG_SECONDS = 7 * 24 * 3600.0
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", re.ASCII)


def state_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """``AWORLD_TRAIN_STATE``, by default ``~/.local/state/aworld-train``."""
    return Path(
        environment.get("AWORLD_TRAIN_STATE")
        or Path(environment.get("HOME") or "~", ".local/state/aworld-train")
    ).expanduser()


def folder() -> Path:
    path = state_folder() / "env"
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
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} cannot be the name of an environment: up to 63 letters, digits, '.', '_' and '-', the "
            "first a letter or a digit."
        )
    return name


def record_path(name: str) -> Path:
    return folder() / f"{checked(name)}.json"


def log_path(name: str) -> Path:
    return folder() / f"{checked(name)}.log"


def old_log_path(name: str) -> Path:
    return folder() / f"{checked(name)}.log.1"


def note_revocation(name: str) -> None:
    _revoked_path(name).touch(mode=0o600)


def take_revocation(name: str) -> bool:
    """Whether a token of that environment was revoked; also removes that note."""
    was_revoked = _revoked_path(name).exists()
    _revoked_path(name).unlink(missing_ok=True)
    return was_revoked


def names() -> list[str]:
    return sorted(path.stem for path in folder().glob("*.json"))


def read(name: str) -> Record | None:
    path = record_path(name)
    try:
        stored = json.loads(path.read_text())
        processes = {
            kind: ProcessIdentity.read(stored[kind]) if stored[kind] else None
            for kind in ("owner", "starter")
        }
        return Record(**{**stored, **processes, "credentials": Credentials(**stored["credentials"])})
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise EnvironmentFailure(
            f"The record {path} cannot be read; delete it when nothing of {name!r} is running any more."
        ) from error


def write(record: Record) -> None:
    processes = {"owner": str(record.owner or ""), "starter": str(record.starter or "")}
    stored = json.dumps(asdict(record) | processes)
    atomic.write_text(record_path(record.name), stored, mode=0o600)


def remove(name: str) -> None:
    record_path(name).unlink(missing_ok=True)


def is_folder_of_record(path: Path) -> bool:
    for name in names():
        try:
            record = read(name)
        except EnvironmentFailure:
            return True  # a record that cannot be read may be its own
        if record is not None and record.handle.get("folder") == str(path):
            return True
    return False


def remove_old_logs() -> list[Path]:
    oldest = time.time() - _LOG_SECONDS
    removed = []
    for pattern in ("*.log", "*.log.1"):
        for log in sorted(folder().glob(pattern)):
            name = log.name.partition(".log")[0]
            with contextlib.suppress(FileNotFoundError):  # another start removes old ones too
                if not (folder() / f"{name}.json").exists() and log.stat().st_mtime < oldest:
                    log.unlink()
                    removed.append(log)
    return removed


@contextmanager
def locked(name: str, wait: float, report_progress: Callable[[str], None] = lambda _: None) -> Iterator[None]:
    path = folder() / f".{checked(name)}.lock"
    deadline = time.monotonic() + wait
    reported = False
    while (descriptor := _lock(path)) is None:
        if time.monotonic() > deadline:
            raise EnvironmentFailure(
                f"Another program has been starting or stopping {name!r} for {wait:.0f} s; try again later."
            )
        if not reported:
            report_progress(f"Another program is starting or stopping {name}; waiting for it.")
            reported = True
        time.sleep(0.1)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)


def _revoked_path(name: str) -> Path:
    return folder() / f"{checked(name)}.revoked"


def _lock(path: Path) -> int | None:
    """An open descriptor that holds the lock, or None where another program holds it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # The last holder deleted the file: a lock on a deleted file excludes no other program.
        if path.stat().st_ino == os.fstat(descriptor).st_ino:
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(descriptor)
    return None


def clean_leftovers() -> list[Path]:
    """Remove what provably belongs to no living process of this user; returns what is gone."""
    removed = []
    for folder in temporary.abandoned(in_use=is_folder_of_record):
        empty(folder)
        with contextlib.suppress(OSError):
            folder.rmdir()
            removed.append(folder)
    return [*removed, *remove_old_logs()]
