"""Where the memory of a run on GPUs goes, by estimate: also for a recipe that is for another machine."""

from collections.abc import Iterator

from aworld_train.doctor.estimate import (
    FROZEN_BYTES,
    GB,
    gigabytes,
    parameters,
    resident_bytes,
    trained_bytes,
)
from aworld_train.doctor.finding import Finding, ok
from aworld_train.doctor.machine import Machine
from aworld_train.doctor.needs import Needs
from aworld_train.recipe.device import on_cpu
from aworld_train.recipe.schema import Offload, Recipe

_WEIGHT, _GRADIENT, _MOMENTS = 4, 4, 8
"""Bytes of a trained parameter: fp32, and AdamW's two moments; together ``TRAINED_BYTES``."""


def memory_plan(machine: Machine, needs: Needs) -> Iterator[Finding]:
    """What each GPU holds while the engine samples and while the trainer updates, and what waits in the machine."""
    recipe = needs.recipe
    count = parameters(machine, needs)
    if recipe is None or on_cpu(recipe) or not count:
        return
    cluster, rollout = recipe.cluster, recipe.rollout
    ranks = cluster.ranks
    engine = count * FROZEN_BYTES / rollout.tensor_parallel
    resident = count * resident_bytes(recipe) / ranks
    trained = count * trained_bytes(recipe) / ranks
    yield ok(
        "gpu",
        f"{cluster.nodes} x {cluster.gpus_per_node} GPUs, {count / GB:.1f} billion parameters, by estimate. While the "
        f"engine samples, each GPU has its weights ({gigabytes(engine)}) and the cache, together "
        f"{rollout.gpu_memory:.0%} of the GPU (rollout.gpu_memory), and {gigabytes(resident)} of the trainer. While "
        f"the trainer updates: {gigabytes(trained)} ({_parts(recipe, count / ranks)}) and the activations of "
        f"one batch. {_offloaded(recipe, count)}",
    )


def _parts(recipe: Recipe, share: float) -> str:
    """What the trainer's memory on one GPU consists of."""
    if recipe.model.lora.rank > 0:
        return "frozen weights; adapters are small"
    return (
        f"weights {gigabytes(_WEIGHT * share)}, gradients {gigabytes(_GRADIENT * share)}, optimizer "
        f"{gigabytes(_MOMENTS * share)}"
    )


def _offloaded(recipe: Recipe, count: int) -> str:
    """What waits in the memory of each machine."""
    offload = recipe.trainer.offload
    if recipe.model.lora.rank > 0:
        size = FROZEN_BYTES if offload in (Offload.params, Offload.all) else 0
    else:
        size = _WEIGHT * (offload in (Offload.params, Offload.all))
        size += _MOMENTS * (offload in (Offload.optimizer, Offload.all))
    return (
        f"trainer.offload={offload.value} moves {gigabytes(size * count / recipe.cluster.nodes)} to the memory of each "
        "machine in between."
    )
