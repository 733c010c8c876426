"""Limits of processes, files and locked memory, from ulimit and from the control group."""

import re
from collections.abc import Iterator

from aworld_train.doctor.control_group import control_group_value
from aworld_train.doctor.finding import Finding, fail, ok, warn
from aworld_train.doctor.machine import Machine
from aworld_train.doctor.needs import Needs

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
                "limits",
                f"{locked} bytes may be locked (ulimit -l); NCCL over InfiniBand locks its buffers.",
                "ulimit -l unlimited, before the command (in SLURM: PropagateResourceLimitsExcept=MEMLOCK).",
            )
        )
    yield from findings
    if not findings:
        shown = ["unlimited" if value == _UNLIMITED else str(value) for value in (files, processes)]
        yield ok("limits", f"{shown[0]} open files, {shown[1]} processes.")


def _low(limit: int, bounds: tuple[int, int], what: str, remedy: str) -> Iterator[Finding]:
    least, enough = bounds
    if _UNLIMITED < limit < enough:
        make = fail if limit < least else warn
        yield make("limits", f"Only {limit} {what}.", f"{remedy}.")


def _soft_limits(machine: Machine) -> dict[str, int]:
    limits = {}
    for line in machine.text("/proc/self/limits").splitlines()[1:]:
        name, soft, *_ = re.split(r"\s{2,}", line.strip())
        limits[name] = int(soft) if soft.isdigit() else _UNLIMITED
    return limits
