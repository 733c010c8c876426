"""What a run computes on."""

from functools import cache
from pathlib import Path

from aworld_train.recipe.schema import Device, Engine, Recipe

_CUDA, _NPU = Path("/dev/nvidiactl"), Path("/dev/davinci_manager")  # what the drivers make


def device_of(recipe: Recipe) -> Device:
    """The recipe's device; in place of ``auto`` that of this machine."""
    if recipe.cluster.device is not Device.auto:
        return recipe.cluster.device
    return Device.cpu if recipe.rollout.engine is Engine.transformers else _accelerator()


@cache
def _accelerator() -> Device:
    if _CUDA.exists():
        return Device.cuda
    return Device.npu if _NPU.exists() else Device.cpu
