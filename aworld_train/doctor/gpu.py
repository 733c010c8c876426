"""The GPUs that the driver lists, beside torch's CUDA and the recipe, and where a run's memory goes on them."""

import json
import math
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from aworld_train.adapter.base import MemoryPlan, framework_of
from aworld_train.doctor.finding import Finding, fault, ok, warn
from aworld_train.doctor.hub import GB, gigabytes, hub_config
from aworld_train.doctor.machine import CommandFailed, Machine
from aworld_train.doctor.needs import Needs
from aworld_train.doctor.packages import cuda_of_torch
from aworld_train.recipe.device import on_cpu

_MAX_USED = 0.1
_MIB = 1 << 20
# https://docs.nvidia.com/deploy/cuda-compatibility: the oldest driver for a major version of CUDA.
_OLDEST_DRIVERS = {11: 450, 12: 525, 13: 580}


@dataclass(frozen=True)
class _Gpu:
    index: str
    identifier: str
    name: str
    total: int
    used: int
    driver: str


def check_gpus(machine: Machine, needs: Needs) -> Iterator[Finding]:
    if machine.program("nvidia-smi") is None:
        yield _no_driver(machine, needs)
        yield from check_gpu_memory(machine, needs, 0)
        return
    try:
        gpus = _visible(machine, _query(machine))
    except CommandFailed as error:
        yield fault(
            needs.gpus > 0,
            f"The GPU driver does not answer: {error}.",
            "Load or reinstall the NVIDIA driver (a new kernel needs it built again), or restart the machine.",
        )
        return
    names = ", ".join(sorted({f"{gpu.name} of {gigabytes(gpu.total)}" for gpu in gpus})) or "none"
    chosen = machine.environment.get("CUDA_VISIBLE_DEVICES")
    if len(gpus) < needs.gpus:
        yield fault(
            True,
            f"The recipe needs {needs.gpus} GPUs and {len(gpus)} can be used ({names})"
            + (f"; CUDA_VISIBLE_DEVICES is {chosen!r}." if chosen is not None else "."),
            "Set cluster.gpus_per_node to what there is, or CUDA_VISIBLE_DEVICES to more of them.",
        )
    else:
        yield ok(f"{len(gpus)} GPUs: {names}.")
    yield from _torch(machine, needs, gpus)
    yield from _in_use(gpus)
    yield from check_gpu_memory(machine, needs, min((gpu.total for gpu in gpus), default=0))
    yield from _interface(machine, needs)


def _no_driver(machine: Machine, needs: Needs) -> Finding:
    devices = [*machine.path("/dev").glob("nvidia[0-9]*")]
    if not needs.gpus and not devices:
        return ok("No GPU; the engine `transformers` trains on processors.")
    reason = "there are GPU devices, but nvidia-smi is missing" if devices else "nvidia-smi is missing"
    what = f"The recipe needs {needs.gpus} GPUs and {reason}." if needs.gpus else f"No driver: {reason}."
    remedy = (
        "Install the NVIDIA driver (in a container: start it with --gpus all), or take engine transformers."
    )
    return fault(needs.gpus > 0, what, remedy)


def _query(machine: Machine) -> list[_Gpu]:
    query = "--query-gpu=index,uuid,name,memory.total,memory.used,driver_version"
    gpus = []
    for line in machine.output("nvidia-smi", query, "--format=csv,noheader,nounits").splitlines():
        values = [value.strip() for value in line.split(",")]
        if len(values) == 6:
            total, used = (int(value) * _MIB if value.isdigit() else 0 for value in values[3:5])
            gpus.append(_Gpu(values[0], values[1], values[2], total, used, values[5]))
    return gpus


def _visible(machine: Machine, gpus: list[_Gpu]) -> list[_Gpu]:
    """Those that CUDA_VISIBLE_DEVICES leaves; CUDA stops at the first entry that it does not know."""
    chosen = machine.environment.get("CUDA_VISIBLE_DEVICES")
    if chosen is None:
        return gpus
    visible = []
    for entry in filter(None, (part.strip() for part in chosen.split(","))):
        # A part of a GPU (MIG) counts as one; which GPU it is a part of does not matter for that.
        is_part = entry.startswith("MIG-")
        match = [gpu for gpu in gpus if is_part or gpu.index == entry or gpu.identifier.startswith(entry)]
        if not match:
            break
        visible.append(match[0])
    return visible


def _torch(machine: Machine, needs: Needs, gpus: list[_Gpu]) -> Iterator[Finding]:
    cuda = cuda_of_torch(machine)
    if machine.version("torch") is None or not gpus:
        return
    if cuda is None:
        yield fault(
            needs.gpus > 0,
            f"torch {machine.version('torch')} is a build without CUDA, so it uses no GPU.",
            "Install the profile gpu: pip install -c requirements/gpu.txt 'aworld-train[gpu]'",
        )
        return
    oldest = _OLDEST_DRIVERS.get(int(cuda.partition(".")[0]), 0)
    driver = gpus[0].driver
    major = driver.partition(".")[0]
    if major.isdigit() and int(major) < oldest:
        yield fault(
            needs.gpus > 0,
            f"The driver {driver} is too old for CUDA {cuda}, for which torch is built: it takes {oldest} or newer.",
            "Update the NVIDIA driver, or install a torch for an older CUDA.",
        )


def _in_use(gpus: list[_Gpu]) -> Iterator[Finding]:
    used = [gpu for gpu in gpus if gpu.total and gpu.used > _MAX_USED * gpu.total]
    if used:
        states = ", ".join(f"{gpu.index} ({gigabytes(gpu.used)})" for gpu in used)
        yield warn(
            f"Other processes use memory of GPU {states}.",
            "End them (nvidia-smi lists them), or leave these GPUs out with CUDA_VISIBLE_DEVICES.",
        )


def _interface(machine: Machine, needs: Needs) -> Iterator[Finding]:
    """NCCL takes interfaces whose names begin with one of the list; ``=`` asks for the whole name, ``^`` for others."""
    chosen = machine.variable("NCCL_SOCKET_IFNAME")
    folder = machine.path("/sys/class/net")
    interfaces = [entry.name for entry in folder.iterdir()] if folder.is_dir() else []
    if not chosen or chosen.startswith("^") or not interfaces:
        return
    names = chosen.lstrip("=").split(",")
    is_there = [
        interface
        for interface in interfaces
        if any(interface == name if chosen.startswith("=") else interface.startswith(name) for name in names)
    ]
    if not is_there:
        yield fault(
            needs.gpus > 0,
            f"NCCL_SOCKET_IFNAME is {chosen!r}, and this machine has no such interface.",
            f"Unset it, or take one of {', '.join(sorted(interfaces))}.",
        )


SPARE = 0.08
"""Of a GPU, for what the plan does not know: fragments, and larger buffers of kernels."""


def plan_of(machine: Machine, needs: Needs, gpu_bytes: int = 0) -> MemoryPlan | None:
    """The plan of the recipe's framework, by the hub's ``config.json`` if it may be asked; None without GPUs."""
    recipe = needs.recipe
    if recipe is None or on_cpu(recipe):
        return None
    framework = framework_of(recipe)
    if plan := framework.memory_plan(recipe, gpu_bytes):
        return plan
    if (config := hub_config(machine, needs)) is None:
        return None
    with tempfile.TemporaryDirectory(prefix="aworld-train-") as folder:
        Path(folder, "config.json").write_text(json.dumps(config), encoding="utf-8")
        described = replace(recipe, model=replace(recipe.model, path=folder, hub=None))
        return framework.memory_plan(described, gpu_bytes)


def check_gpu_memory(machine: Machine, needs: Needs, gpu_bytes: int) -> Iterator[Finding]:
    """What each GPU holds in each phase, and whether the smallest one here (0: none) has as much."""
    plan, recipe = plan_of(machine, needs, gpu_bytes), needs.recipe
    if plan is None or recipe is None:
        return
    size = f"{plan.parameters / GB:.1f} billion parameters"
    fullest, cluster = plan.fullest, recipe.cluster
    phases = ", ".join(
        f"{phase} {gigabytes(plan.total(phase))}{'' if phase != 'sample' or gpu_bytes else ' and the engine'}"
        for phase in plan.phases
    )
    parts = ", ".join(f"{part} {gigabytes(size)}" for part, size in plan.phases[fullest].items() if size)
    yield ok(
        f"{cluster.nodes} x {cluster.gpus_per_node} GPUs, {size}. A run takes of each GPU, by estimate: {phases}. "
        f"{fullest.capitalize()}: {parts}. While it samples, the engine has "
        f"{recipe.rollout.gpu_memory:.0%} of the GPU (rollout.gpu_memory)."
    )
    if gpu_bytes and plan.total(fullest) > (1 - SPARE) * gpu_bytes:
        yield warn(
            f"By estimate it does not fit: {size} take {gigabytes(plan.total(fullest))} of a GPU ({fullest}), and it "
            f"has {gigabytes(gpu_bytes)}, of which {SPARE:.0%} should stay free.",
            "Take a lower rollout.gpu_memory."
            if fullest == "sample"
            else "Take more GPUs, LoRA (model.lora.rank), or shorter rows (trainer.max_batch_tokens).",
        )
    if cluster.ranks > 1:
        yield ok(
            f"The first of {cluster.ranks} ranks writes {gigabytes(plan.copy)} of a checkpoint alone, and the others "
            f"wait for it, {plan.max_wait // 60} minutes at most: the run's folder has to take "
            f"{math.ceil(plan.copy / plan.max_wait / 1e6)} MB/s."
        )
