"""The names of a run folder's files, and its lock; imports nothing that makes a run."""

import fcntl
import json
import os
import platform
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from aworld_train.atomic import is_locked, write_text
from aworld_train.errors import UsageError
from aworld_train.json_lines import split_lines
from aworld_train.process_supervisor import ProcessIdentity

LAUNCH_RECORD = "launch.json"
"""The file by which the job of a run is found again; see ``launch.record``."""
LAUNCH_FOLDER = "launch"
"""The folder with the files of a launch: a job's script, recipe and log."""
RECIPE, MANIFEST, METRICS = "recipe.yaml", "manifest.json", "metrics.jsonl"
SETTINGS = "eval"
"""The manifest's key for the settings of an evaluation, whose folder holds no training."""
SUMMARY = "summary.json"
LOCK = "run.lock"
"""Locked by the process that works on a run; it says which one that is."""
_LOCK_ATTEMPTS, _LOCK_PAUSE_SECONDS = 5, 0.1  # `is_in_use` in another process holds the lock for a moment


def has_run(path: Path) -> bool:
    """Whether a step was trained in a folder: its row is in the metrics, or there is a checkpoint."""
    rows, _ = split_lines(path / METRICS)
    checkpoints = path / "checkpoints"
    return any(row.get("step") != 0 for row in rows) or (checkpoints.is_dir() and any(checkpoints.iterdir()))


def in_use_error(path: Path, rename: str = "give this run another name (name=...)") -> UsageError:
    """The error for a folder that a process works on; ``rename`` is how the new run gets another folder."""
    holder = holder_of(path)
    where = "another process"
    if holder:
        began = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(holder.since))
        where = f"process {holder.process.pid} on {holder.host}, since {began}"
    return UsageError(
        f"The run in {path} is running: {where}. Follow it with `aworld-train runs attach {path}`, end it with "
        f"`aworld-train runs stop {path}`, or {rename}."
    )


@dataclass(frozen=True)
class Holder:
    """The process that works on a run; ``since`` is Unix time."""

    process: ProcessIdentity
    host: str
    since: float


def is_in_use(path: Path) -> bool:
    """Whether a process works on the run in a folder."""
    return is_locked(path / LOCK)


def holder_of(path: Path) -> Holder | None:
    """The process that works, or worked last, on the run in a folder; None if that cannot be read."""
    try:
        stored = json.loads((path / LOCK).read_text())
        return Holder(ProcessIdentity.read(stored["process"]), stored["host"], stored["since"])
    except (OSError, ValueError, TypeError, KeyError):
        return None


def lock_folder(path: Path) -> TextIO:
    lock = (path / LOCK).open("a")
    for last in (False,) * _LOCK_ATTEMPTS + (True,):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if last:
                lock.close()
                raise in_use_error(path) from None
            time.sleep(_LOCK_PAUSE_SECONDS)
    lock.truncate(0)
    process = str(ProcessIdentity.of(os.getpid()))
    lock.write(json.dumps({"process": process, "host": platform.node(), "since": time.time()}) + "\n")
    lock.flush()
    return lock


def write_object(file: Path, value: Mapping[str, Any]) -> None:
    write_text(file, json.dumps(value, indent=2) + "\n")
