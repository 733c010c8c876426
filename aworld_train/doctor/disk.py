"""Space on the file systems that a run writes to, shared memory, and whether folders do what runs rely on.

``df`` is asked instead of the kernel: a network file system that hangs then holds up another process, not this one.
"""

import fcntl
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from aworld_train.doctor.finding import Finding, fail, fault, ok, warn
from aworld_train.doctor.gpu import plan_of
from aworld_train.doctor.hub import GB, gigabytes, hub_cache, parameters
from aworld_train.doctor.machine import Machine
from aworld_train.doctor.needs import Needs, existing
from aworld_train.env.registry import state_folder
from aworld_train.training.disk_need import disk_need

_MIN_RUN = GB
"""For logs and metrics of a run, beside its checkpoints and episodes."""
_MIN_TEMPORARY = GB
_MIN_CACHE = 5 * GB
_MIN_INODES = 10_000
_MAX_USED = 0.95
"""Ray writes no objects to a disk that is fuller (its ``local_fs_capacity_threshold``)."""
_MIN_SHARED = GB
"""The private Ray's object store has 400 MB, and each GPU's process some more for NCCL; Docker's default is 64 MB."""


@dataclass(frozen=True)
class Space:
    """A file system, as ``df`` describes it. Sizes are in bytes; 0 inodes where it has no limit."""

    kind: str
    size: int
    free: int
    inodes: int
    free_inodes: int

    @property
    def used(self) -> float:
        return 1 - self.free / self.size if self.size else 0.0


def space_of(machine: Machine, path: Path) -> Space:
    columns = "--output=fstype,size,avail,itotal,iavail"
    line = machine.output("df", "-B1", columns, str(existing(path))).splitlines()[-1].split()
    size, free, inodes, free_inodes = (int(value) if value.isdigit() else 0 for value in line[1:5])
    return Space(line[0], size, free, inodes, free_inodes)


def check_disk(machine: Machine, needs: Needs) -> Iterator[Finding]:
    run, required = needs.run_folder(machine), _MIN_RUN
    if needs.recipe is not None:
        count = parameters(machine, needs)
        if not count and (plan := plan_of(machine, needs)):
            count = plan.parameters
        required += disk_need(needs.recipe, count).total
    space = space_of(machine, run)
    if space.free < required:
        yield fail(
            f"{gigabytes(space.free)} are free for {run}, and a run needs about {gigabytes(required)}.",
            "Free some, take another folder (--runs), or keep fewer checkpoints (trainer.keep_checkpoints).",
        )
    else:
        yield ok(f"{gigabytes(space.free)} are free for {run}.")
    if space.inodes and space.free_inodes < _MIN_INODES:
        yield fail(
            f"The file system of {run} can have only {space.free_inodes} more files.",
            "Remove files that are not needed; a quota of files can be the cause too.",
        )
    yield from _temporary(machine)
    cache = hub_cache(machine)
    if (free := space_of(machine, cache).free) < _MIN_CACHE:
        yield warn(
            f"{gigabytes(free)} are free for models from the hub, in {cache}.",
            "Set HF_HOME to a folder with more space before models are fetched.",
        )


def _temporary(machine: Machine) -> Iterator[Finding]:
    folder = machine.path("/tmp")
    space = space_of(machine, folder)
    if space.free < _MIN_TEMPORARY:
        yield fail(
            f"{gigabytes(space.free)} are free in {folder}, where Ray and tools keep their files.",
            "Free some there: old /tmp/ray and /tmp/aworld-* folders of processes that ended, first of all.",
        )
    elif space.used > _MAX_USED:
        yield warn(
            f"The disk of {folder} is {space.used:.0%} full; above 95 % Ray writes no objects to it.",
            f"Free some, although {gigabytes(space.free)} are left.",
        )
    else:
        yield ok(f"{gigabytes(space.free)} are free in {folder}.")
    mounts = [line.split() for line in machine.text("/proc/mounts").splitlines()]
    options = next((mount[3] for mount in reversed(mounts) if mount[1:2] == ["/tmp"]), "")
    if "noexec" in options.split(","):
        yield warn(
            "/tmp is mounted noexec: compilers of kernels (Triton, torch.compile) load what they write there.",
            "Mount it without noexec, or set TMPDIR and TRITON_CACHE_DIR to another folder.",
        )


def check_shared_memory(machine: Machine, needs: Needs) -> Iterator[Finding]:
    folder = machine.path("/dev/shm")
    if not folder.is_dir():
        yield fault(needs.trains, f"There is no {folder}.", "Mount a tmpfs there.")
        return
    space = space_of(machine, folder)
    if space.free < _MIN_SHARED:
        yield fault(
            needs.gpus > 1,
            f"{gigabytes(space.free)} of {gigabytes(space.size)} are free in {folder}; Ray and NCCL want a gigabyte.",
            "In a container: --shm-size=8g or --ipc=host. Else remove what ended processes left there.",
        )
    else:
        yield ok(f"{gigabytes(space.free)} are free in {folder}.")


_NETWORK = ("nfs", "cifs", "smb", "lustre", "gpfs", "beegfs", "ceph", "fuse.", "9p", "gluster", "wekafs")
_OTHER_FOLDER = "Take a folder on another file system with --runs."


def check_run_folder(machine: Machine, needs: Needs) -> Iterator[Finding]:
    folder = existing(needs.run_folder(machine))
    if not folder.is_dir():
        yield fail(f"{folder} is a file, so no run folder can be made there.", _OTHER_FOLDER)
        return
    if "${" in str(folder.absolute()):
        what = f"{folder} has '${{' in its path, which frameworks read as a reference."
        yield fail(what, _OTHER_FOLDER)
        return
    if problem := _problem(folder):
        yield fail(f"{folder} {problem}.", _OTHER_FOLDER)
        return
    kind = space_of(machine, folder).kind
    if kind.startswith(_NETWORK):
        yield warn(
            f"{folder} is on a network file system ({kind}): slower, and a second machine may see files late.",
            f"Good for runs of several machines, if all mount it with locks; else: {_OTHER_FOLDER}",
        )
    else:
        yield ok(f"{folder} ({kind}) can be written, locked and replaced in.")


def check_home(machine: Machine, needs: Needs) -> Iterator[Finding]:
    """Whether the folders that are in the user's home by default can be written: a container's user often has none."""
    state = machine.folder / state_folder({"HOME": str(machine.home()), **machine.environment})
    if problem := _problem(existing(state)):
        yield fail(
            f"{state}, where train and env up note what runs, cannot be made: {existing(state)} {problem}.",
            "Set AWORLD_TRAIN_STATE (or HOME) to a folder that this user can write.",
        )
    else:
        yield ok(f"{state} can be written.")
    cache = hub_cache(machine)
    if problem := _problem(existing(cache)):
        yield warn(
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
