"""Memory, processors, processes and files that this process may use, by the machine and its control group."""

import os
import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from aworld_train.doctor.finding import Finding, fail, fault, ok, warn
from aworld_train.doctor.gpu import plan_of
from aworld_train.doctor.hub import GB, TRAINED_BYTES, gigabytes, parameters
from aworld_train.doctor.machine import Machine
from aworld_train.doctor.needs import Needs

_ROOT = "/sys/fs/cgroup"
_MAX_LIMIT = 1 << 60
"""Greater values stand for no limit: version 1 has no word for it."""


def control_group_value(machine: Machine, controller: str, file: str) -> int | None:
    """The smallest limit in ``file`` of this process's group and the groups above it; None if there is none."""
    values = [text.split()[0] for text in control_group_texts(machine, controller, file)]
    limits = [int(value) for value in values if value.isdigit() and int(value) < _MAX_LIMIT]
    return min(limits, default=None)


def control_group_texts(machine: Machine, controller: str, file: str) -> list[str]:
    """The contents of ``file`` in this process's group and the groups above it, where it is not empty."""
    texts = []
    for line in machine.text("/proc/self/cgroup").splitlines():
        _, controllers, group = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        folder = PurePosixPath(_ROOT, controllers and controller)
        path = PurePosixPath(group)
        for parent in (path, *path.parents):
            texts.append(machine.text(f"{folder}{parent}/{file}").strip())
    # In a container the group's own folder is often mounted as the root.
    texts += [machine.text(f"{_ROOT}/{prefix}{file}").strip() for prefix in ("", f"{controller}/")]
    return [text for text in texts if text]


_RUN_BYTES = 4.5 * GB
"""Of Ray, the trainer, the engine and the tools without the model; the quickstart's peak is 4.4 GB."""
_ENGINE_BYTES = 4
"""Of a parameter in the engine `transformers`, which computes in fp32."""
_MIN_PROCESSORS = 2


def check_memory(machine: Machine, needs: Needs) -> Iterator[Finding]:
    total, available = _of_machine(machine)
    files = ("memory.max", "memory.limit_in_bytes")
    group_limits = [control_group_value(machine, "memory", file) for file in files]
    group = min([total, *(value for value in group_limits if value is not None)])
    whole = min(total, group)
    if not whole:
        yield warn("The memory of this machine is not known.", "See that /proc/meminfo can be read.")
        return
    plan = plan_of(machine, needs)
    of_model = (
        plan.waits + plan.copy if plan else parameters(machine, needs) * (TRAINED_BYTES + _ENGINE_BYTES)
    )
    required = _RUN_BYTES + (of_model if plan or not needs.gpus else 0)
    limit = " (the control group's limit)" if group < total else ""
    if whole < required:
        yield fault(
            needs.trains,
            f"There are {gigabytes(whole)} of memory{limit}, and a run needs about {gigabytes(required)}.",
            "Give it more (a container's --memory, SLURM's --mem), or take a smaller model"
            + (", or trainer.offload=none." if plan and plan.waits else "."),
        )
    elif available < required:
        yield warn(
            f"{gigabytes(available)} of {gigabytes(whole)} of memory are free, and a run needs about "
            f"{gigabytes(required)}.",
            "End other programs, or wait for them.",
        )
    else:
        yield ok(f"{gigabytes(min(available, whole))} of {gigabytes(whole)} of memory are free{limit}.")


def _of_machine(machine: Machine) -> tuple[int, int]:
    kilobytes = dict(re.findall(r"^(\w+):\s+(\d+) kB", machine.text("/proc/meminfo"), re.MULTILINE))
    return int(kilobytes.get("MemTotal", 0)) * 1024, int(kilobytes.get("MemAvailable", 0)) * 1024


def check_processors(machine: Machine, needs: Needs) -> Iterator[Finding]:
    cores = len(os.sched_getaffinity(0))
    share = min([float(cores), *_shares(machine)])
    if share < _MIN_PROCESSORS:
        yield warn(
            f"This process may use {share:g} of {os.cpu_count()} processors; a run has a dozen processes.",
            "Give it two or more (a container's --cpus, SLURM's --cpus-per-task).",
        )
    else:
        yield ok(f"{share:g} of {os.cpu_count()} processors.")


def _shares(machine: Machine) -> Iterator[float]:
    for text in control_group_texts(machine, "cpu", "cpu.max"):
        quota, period = [*text.split(), "100000"][:2]
        if quota.isdigit():
            yield int(quota) / int(period)
    quota_v1 = control_group_value(machine, "cpu", "cpu.cfs_quota_us")
    period_v1 = control_group_value(machine, "cpu", "cpu.cfs_period_us")
    if quota_v1 and period_v1:
        yield quota_v1 / period_v1


_UNLIMITED = -1
# Ray warns below 8192 open files; its processes have hundreds of threads and connections each.
_FILES = (1024, 8192)
_PROCESSES = (512, 4096)
_MIN_LOCKED = 1 << 30


def check_limits(machine: Machine, needs: Needs) -> Iterator[Finding]:
    limits = _soft_limits(machine)
    files, processes, locked = (
        limits.get(name, _UNLIMITED) for name in ("Max open files", "Max processes", "Max locked memory")
    )
    tasks = control_group_value(machine, "pids", "pids.max")
    findings = [
        *_low(files, _FILES, "files may be open (ulimit -n)", "ulimit -n 65536, before the command"),
        *_low(processes, _PROCESSES, "processes may run (ulimit -u)", "ulimit -u 65536, before the command"),
        *_low(
            tasks if tasks is not None else _UNLIMITED,
            _PROCESSES,
            "processes may run in this control group (pids.max)",
            "a greater limit for the container (--pids-limit) or the service",
        ),
    ]
    rdma = machine.path("/sys/class/infiniband")
    if needs.gpus and rdma.is_dir() and any(rdma.iterdir()) and _UNLIMITED < locked < _MIN_LOCKED:
        findings.append(
            warn(
                f"{locked} bytes may be locked (ulimit -l); NCCL over InfiniBand locks its buffers.",
                "ulimit -l unlimited, before the command (in SLURM: PropagateResourceLimitsExcept=MEMLOCK).",
            )
        )
    yield from findings
    if not findings:
        shown = ["unlimited" if value == _UNLIMITED else str(value) for value in (files, processes)]
        yield ok(f"{shown[0]} open files, {shown[1]} processes.")


def _low(limit: int, bounds: tuple[int, int], what: str, remedy: str) -> Iterator[Finding]:
    least, enough = bounds
    if _UNLIMITED < limit < enough:
        make = fail if limit < least else warn
        yield make(f"Only {limit} {what}.", f"{remedy}.")


def _soft_limits(machine: Machine) -> dict[str, int]:
    limits = {}
    for line in machine.text("/proc/self/limits").splitlines()[1:]:
        name, soft, *_ = re.split(r"\s{2,}", line.strip())
        limits[name] = int(soft) if soft.isdigit() else _UNLIMITED
    return limits
