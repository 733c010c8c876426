"""Space on the file systems that a run writes to, and shared memory.

``df`` is asked instead of the kernel: a network file system that hangs then holds up another process, not this one.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from aworld_train.doctor.estimate import GB, gigabytes, hub_cache, parameters
from aworld_train.doctor.finding import Finding, fail, fault, ok, warn
from aworld_train.doctor.gpu_memory import plan_of
from aworld_train.doctor.machine import Machine
from aworld_train.doctor.needs import Needs, existing
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
        """The part that is in use."""
        return 1 - self.free / self.size if self.size else 0.0


def space_of(machine: Machine, path: Path) -> Space:
    """The file system of a path, or of the nearest folder above it that exists.

    Raises:
        CommandFailed: ``df`` cannot say.
        NoAnswer: The file system hangs.
    """
    columns = "--output=fstype,size,avail,itotal,iavail"
    line = machine.output("df", "-B1", columns, str(existing(path))).splitlines()[-1].split()
    size, free, inodes, free_inodes = (int(value) if value.isdigit() else 0 for value in line[1:5])
    return Space(line[0], size, free, inodes, free_inodes)


def check_disk(machine: Machine, needs: Needs) -> Iterator[Finding]:
    """Space for the run, for temporary files and for models."""
    run, required = needs.run_folder(machine), _MIN_RUN
    if needs.recipe is not None:
        count = parameters(machine, needs)
        if not count and (plan := plan_of(machine, needs)):
            count = plan.parameters
        required += disk_need(needs.recipe, count).total
    space = space_of(machine, run)
    if space.free < required:
        yield fail(
            "disk",
            f"{gigabytes(space.free)} are free for {run}, and a run needs about {gigabytes(required)}.",
            "Free some, take another folder (--runs), or keep fewer checkpoints (trainer.keep_checkpoints).",
        )
    else:
        yield ok("disk", f"{gigabytes(space.free)} are free for {run}.")
    if space.inodes and space.free_inodes < _MIN_INODES:
        yield fail(
            "disk",
            f"The file system of {run} can have only {space.free_inodes} more files.",
            "Remove files that are not needed; a quota of files can be the cause too.",
        )
    yield from _temporary(machine)
    cache = hub_cache(machine)
    if (free := space_of(machine, cache).free) < _MIN_CACHE:
        yield warn(
            "disk",
            f"{gigabytes(free)} are free for models from the hub, in {cache}.",
            "Set HF_HOME to a folder with more space before models are fetched.",
        )


def _temporary(machine: Machine) -> Iterator[Finding]:
    folder = machine.path("/tmp")
    space = space_of(machine, folder)
    if space.free < _MIN_TEMPORARY:
        yield fail(
            "disk",
            f"{gigabytes(space.free)} are free in {folder}, where Ray and tools keep their files.",
            "Free some there: old /tmp/ray and /tmp/aworld-* folders of processes that ended, first of all.",
        )
    elif space.used > _MAX_USED:
        yield warn(
            "disk",
            f"The disk of {folder} is {space.used:.0%} full; above 95 % Ray writes no objects to it.",
            f"Free some, although {gigabytes(space.free)} are left.",
        )
    else:
        yield ok("disk", f"{gigabytes(space.free)} are free in {folder}.")
    if "noexec" in _mount_options(machine, "/tmp"):
        yield warn(
            "disk",
            "/tmp is mounted noexec: compilers of kernels (Triton, torch.compile) load what they write there.",
            "Mount it without noexec, or set TMPDIR and TRITON_CACHE_DIR to another folder.",
        )


def _mount_options(machine: Machine, mounted_at: str) -> list[str]:
    """Of the last file system that was mounted there; empty if none is."""
    lines = [line.split() for line in machine.text("/proc/mounts").splitlines()]
    return next((line[3].split(",") for line in reversed(lines) if line[1:2] == [mounted_at]), [])


def check_shared_memory(machine: Machine, needs: Needs) -> Iterator[Finding]:
    """The size of /dev/shm, in which processes exchange tensors."""
    folder = machine.path("/dev/shm")
    if not folder.is_dir():
        yield fault("shared memory", needs.trains, f"There is no {folder}.", "Mount a tmpfs there.")
        return
    space = space_of(machine, folder)
    if space.free < _MIN_SHARED:
        yield fault(
            "shared memory",
            needs.gpus > 1,
            f"{gigabytes(space.free)} of {gigabytes(space.size)} are free in {folder}; Ray and NCCL want a gigabyte.",
            "In a container: --shm-size=8g or --ipc=host. Else remove what ended processes left there.",
        )
    else:
        yield ok("shared memory", f"{gigabytes(space.free)} are free in {folder}.")
