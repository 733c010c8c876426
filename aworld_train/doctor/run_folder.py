"""Whether the folders of a run and of the user do what runs rely on: files, locks, and replacement in one step."""

import fcntl
import tempfile
from collections.abc import Iterator
from pathlib import Path

from aworld_train.doctor.disk import space_of
from aworld_train.doctor.estimate import hub_cache
from aworld_train.doctor.finding import Finding, fail, ok, warn
from aworld_train.doctor.machine import Machine
from aworld_train.doctor.needs import Needs, existing
from aworld_train.env.registry import state_folder

_NETWORK = ("nfs", "cifs", "smb", "lustre", "gpfs", "beegfs", "ceph", "fuse.", "9p", "gluster", "wekafs")
_OTHER_FOLDER = "Take a folder on another file system with --runs."


def check_run_folder(machine: Machine, needs: Needs) -> Iterator[Finding]:
    folder = existing(needs.run_folder(machine))
    if not folder.is_dir():
        yield fail("run folder", f"{folder} is a file, so no run folder can be made there.", _OTHER_FOLDER)
        return
    if "${" in str(folder.absolute()):
        what = f"{folder} has '${{' in its path, which frameworks read as a reference."
        yield fail("run folder", what, _OTHER_FOLDER)
        return
    if problem := _problem(folder):
        yield fail("run folder", f"{folder} {problem}.", _OTHER_FOLDER)
        return
    kind = space_of(machine, folder).kind
    if kind.startswith(_NETWORK):
        yield warn(
            "run folder",
            f"{folder} is on a network file system ({kind}): slower, and a second machine may see files late.",
            f"Good for runs of several machines, if all mount it with locks; else: {_OTHER_FOLDER}",
        )
    else:
        yield ok("run folder", f"{folder} ({kind}) can be written, locked and replaced in.")


def check_home(machine: Machine, needs: Needs) -> Iterator[Finding]:
    """Whether the folders that are in the user's home by default can be written: a container's user often has none."""
    state = machine.folder / state_folder({"HOME": str(machine.home()), **machine.environment})
    if problem := _problem(existing(state)):
        yield fail(
            "home",
            f"{state}, where train and env up note what runs, cannot be made: {existing(state)} {problem}.",
            "Set AWORLD_TRAIN_STATE (or HOME) to a folder that this user can write.",
        )
    else:
        yield ok("home", f"{state} can be written.")
    cache = hub_cache(machine)
    if problem := _problem(existing(cache)):
        yield warn(
            "home",
            f"Models cannot be fetched into {cache}: {existing(cache)} {problem}.",
            "Set HF_HOME (or HOME) to a folder that this user can write.",
        )


def _problem(folder: Path) -> str:
    try:
        with tempfile.TemporaryDirectory(prefix=".aworld-doctor-", dir=folder) as trial:
            return _trial(Path(trial))
    except OSError as error:
        return f"cannot be written: {error.strerror}"


def _trial(folder: Path) -> str:
    """What does not work in an empty folder; empty if all does."""
    target, new = folder / "target", folder / "new"
    target.write_text("old")
    new.write_text("new")
    new.replace(target)
    if target.read_text() != "new" or new.exists():
        return "does not replace files in one step"
    with target.open() as first, target.open() as second:
        try:
            fcntl.flock(first, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            return f"has no locks (flock: {error.strerror})"
        try:
            fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return ""
    return "lets two processes hold the same lock"
