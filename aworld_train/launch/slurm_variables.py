"""What the variables of a SLURM job, or of a user's own wrapper, say: values of ``cluster``, and machines left idle."""

import os
from collections.abc import Mapping
from typing import Any

from aworld_train.recipe.device import on_cpu
from aworld_train.recipe.schema import LauncherName, Recipe
from aworld_train.recipe.source import Layer

_VARIABLES = {
    "nodes": ("NNODES", "SLURM_JOB_NUM_NODES"),
    "gpus_per_node": ("GPUS_PER_NODE", "SLURM_GPUS_ON_NODE"),
}
"""Variables by key of ``cluster``; the wrapper's own go first, because a wrapper may use a part of its job."""


def inside_allocation(environment: Mapping[str, str] = os.environ) -> bool:
    return {"SLURM_JOB_ID", "SLURM_JOB_NODELIST"} <= environment.keys()


def cluster_defaults(environment: Mapping[str, str] = os.environ) -> Layer:
    """Values to be laid under a recipe; the layer's name has the variables that they come from.

    Inside a job of several nodes the launcher is ``slurm``, so that a run uses them all.
    """
    section: dict[str, Any] = {}
    used: list[str] = []
    in_job = inside_allocation(environment)
    for key, names in _VARIABLES.items():
        for name in names:
            # SLURM's own mean nothing outside of a job, such as those that a shell has kept of one that has ended.
            value = environment.get(name, "") if in_job or not name.startswith("SLURM_") else ""
            if value.isdecimal() and int(value) > 0:
                section[key] = int(value)
                used.append(f"{name}={value}")
                break
    if in_job and section.get("nodes", 1) > 1:
        section["launcher"] = LauncherName.slurm.value
    name = f"{', '.join(used)} in this shell (unset what another job has left there)"
    return Layer({"cluster": section} if section else {}, name)


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
