"""Where the memory of a run on GPUs goes, by the framework's plan: also for a recipe that is for another machine."""

import json
import math
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from aworld_train.adapter.base import MemoryPlan, framework_of
from aworld_train.doctor.estimate import GB, gigabytes
from aworld_train.doctor.finding import Finding, ok, warn
from aworld_train.doctor.hub import hub_config
from aworld_train.doctor.machine import Machine
from aworld_train.doctor.needs import Needs
from aworld_train.recipe.device import on_cpu

SPARE = 0.08
"""Of a GPU, for what the plan does not know: fragments, and larger buffers of kernels."""


def plan_of(machine: Machine, needs: Needs, gpu_bytes: int = 0) -> MemoryPlan | None:
    """The plan of the recipe's framework; None without a recipe for GPUs.

    Of a model that is not here it is made from the hub's ``config.json`` where the hub may be asked, else None.
    """
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
    yield ok(
        "gpu",
        f"{cluster.nodes} x {cluster.gpus_per_node} GPUs, {size}. A run takes of each GPU, by estimate: {phases}. "
        f"{fullest.capitalize()}: {_parts(plan.phases[fullest])}. While it samples, the engine has "
        f"{recipe.rollout.gpu_memory:.0%} of the GPU (rollout.gpu_memory).",
    )
    if gpu_bytes and plan.total(fullest) > (1 - SPARE) * gpu_bytes:
        yield warn(
            "gpu",
            f"By estimate it does not fit: {size} take {gigabytes(plan.total(fullest))} of a GPU ({fullest}), and it "
            f"has {gigabytes(gpu_bytes)}, of which {SPARE:.0%} should stay free.",
            "Take a lower rollout.gpu_memory."
            if fullest == "sample"
            else "Take more GPUs, LoRA (model.lora.rank), or shorter rows (trainer.max_batch_tokens).",
        )
    if cluster.ranks > 1:
        yield ok(
            "gpu",
            f"The first of {cluster.ranks} ranks writes {gigabytes(plan.copy)} of a checkpoint alone, and the others "
            f"wait for it, {plan.max_wait // 60} minutes at most: the run's folder has to take "
            f"{math.ceil(plan.copy / plan.max_wait / 1e6)} MB/s.",
        )


def _parts(parts: Mapping[str, int]) -> str:
    return ", ".join(f"{part} {gigabytes(size)}" for part, size in parts.items() if size)
