"""What a run does not use of the machines that a scheduler has given to it: it costs, and nothing else shows it."""

import os
from collections.abc import Mapping

from aworld_train.launch.defaults import inside_allocation
from aworld_train.recipe.device import on_cpu
from aworld_train.recipe.schema import LauncherName, Recipe


def unused_resources(recipe: Recipe, environment: Mapping[str, str] = os.environ) -> str | None:
    """A sentence about the nodes and GPUs of this SLURM job that a recipe leaves idle; None if it uses all."""
    if not inside_allocation(environment):
        return None
    cluster = recipe.cluster
    nodes = cluster.nodes if cluster.launcher is LauncherName.slurm else 1
    allocated_nodes = _number(environment.get("SLURM_JOB_NUM_NODES"))
    on_gpus = not on_cpu(recipe)
    gpus = cluster.gpus_per_node if on_gpus else 0
    allocated_gpus = _number(environment.get("SLURM_GPUS_ON_NODE"))
    parts, remedies = [], []
    if allocated_nodes > nodes:
        parts.append(f"{nodes} of {allocated_nodes} nodes")
        remedies.append("cluster.launcher=slurm with cluster.nodes")
    if allocated_gpus > gpus:
        parts.append(f"{gpus} of {allocated_gpus} GPUs per node")
        remedies.append("cluster.gpus_per_node" if on_gpus else "rollout.engine=vllm with cluster.device")
    if not parts:
        return None
    return (
        f"The SLURM job {environment['SLURM_JOB_ID']} has more than the run uses: {' and '.join(parts)}. Set "
        f"{' and '.join(remedies)}, or ask for less."
    )


def _number(text: str | None) -> int:
    return int(text) if text and text.isdecimal() else 0
