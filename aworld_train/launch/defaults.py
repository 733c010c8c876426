"""Values of ``cluster`` for a recipe that names none, from the variables of a SLURM job or of a user's own wrapper."""

import os
from collections.abc import Mapping
from typing import Any

from aworld_train.recipe.schema import LauncherName

_VARIABLES = {
    "nodes": ("NNODES", "SLURM_JOB_NUM_NODES"),
    "gpus_per_node": ("GPUS_PER_NODE", "SLURM_GPUS_ON_NODE"),
}
"""Variables by key of ``cluster``; the wrapper's own go first, because a wrapper may use a part of its job."""


def cluster_defaults(environment: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """A mapping in the shape of a recipe, to be laid under it.

    Inside a job of several nodes the launcher is ``slurm``, so that a run uses them all.
    """
    section: dict[str, Any] = {}
    for key, names in _VARIABLES.items():
        for name in names:
            # SLURM's own mean nothing outside of a job, such as those that a shell has kept of one that has ended.
            is_stale = name.startswith("SLURM_") and "SLURM_JOB_ID" not in environment
            value = "" if is_stale else environment.get(name, "")
            if value.isdecimal() and int(value) > 0:
                section[key] = int(value)
                break
    if "SLURM_JOB_ID" in environment and section.get("nodes", 1) > 1:
        section["launcher"] = LauncherName.slurm.value
    return {"cluster": section} if section else {}
