"""Memory and processors that this process may use, which in a container is less than the machine has."""

import os
import re
from collections.abc import Iterator

from aworld_train.doctor.control_group import control_group_texts, control_group_value
from aworld_train.doctor.estimate import GB, TRAINED_BYTES, gigabytes, parameters
from aworld_train.doctor.finding import Finding, fault, ok, warn
from aworld_train.doctor.gpu_memory import plan_of
from aworld_train.doctor.machine import Machine
from aworld_train.doctor.needs import Needs

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
        yield warn(
            "memory", "The memory of this machine is not known.", "See that /proc/meminfo can be read."
        )
        return
    plan = plan_of(machine, needs)
    of_model = (
        plan.waits + plan.copy if plan else parameters(machine, needs) * (TRAINED_BYTES + _ENGINE_BYTES)
    )
    required = _RUN_BYTES + (of_model if plan or not needs.gpus else 0)
    limit = " (the control group's limit)" if group < total else ""
    if whole < required:
        yield fault(
            "memory",
            needs.trains,
            f"There are {gigabytes(whole)} of memory{limit}, and a run needs about {gigabytes(required)}.",
            "Give it more (a container's --memory, SLURM's --mem), or take a smaller model"
            + (", or trainer.offload=none." if plan and plan.waits else "."),
        )
    elif available < required:
        yield warn(
            "memory",
            f"{gigabytes(available)} of {gigabytes(whole)} of memory are free, and a run needs about "
            f"{gigabytes(required)}.",
            "End other programs, or wait for them.",
        )
    else:
        yield ok(
            "memory", f"{gigabytes(min(available, whole))} of {gigabytes(whole)} of memory are free{limit}."
        )


def _of_machine(machine: Machine) -> tuple[int, int]:
    """Total and available bytes; 0 where they are not known."""
    kilobytes = dict(re.findall(r"^(\w+):\s+(\d+) kB", machine.text("/proc/meminfo"), re.MULTILINE))
    return int(kilobytes.get("MemTotal", 0)) * 1024, int(kilobytes.get("MemAvailable", 0)) * 1024


def check_processors(machine: Machine, needs: Needs) -> Iterator[Finding]:
    cores = len(os.sched_getaffinity(0))
    share = min([float(cores), *_shares(machine)])
    if share < _MIN_PROCESSORS:
        yield warn(
            "processors",
            f"This process may use {share:g} of {os.cpu_count()} processors; a run has a dozen processes.",
            "Give it two or more (a container's --cpus, SLURM's --cpus-per-task).",
        )
    else:
        yield ok("processors", f"{share:g} of {os.cpu_count()} processors.")


def _shares(machine: Machine) -> Iterator[float]:
    """Processors by the quotas of control groups."""
    for text in control_group_texts(machine, "cpu", "cpu.max"):
        quota, period = [*text.split(), "100000"][:2]
        if quota.isdigit():
            yield int(quota) / int(period)
    quota_v1 = control_group_value(machine, "cpu", "cpu.cfs_quota_us")
    period_v1 = control_group_value(machine, "cpu", "cpu.cfs_period_us")
    if quota_v1 and period_v1:
        yield quota_v1 / period_v1
