"""How the trainer computes attention on GPUs, by transformers' name for it.

VeRL asks for ``flash_attention_2`` unless it is told otherwise, and transformers loads no model with one that is not
installed. Rows that are packed one behind the other are right with torch's own (``sdpa``) too, at about half the speed
in VeRL's own figures (https://github.com/volcengine/verl/pull/7131); only where GPUs share sequences it is wrong:
VeRL 0.9.1 changes flash attention alone for that (verl/models/transformers/monkey_patch.py), and says nothing.
"""

from collections.abc import Iterator
from importlib.util import find_spec

from aworld_train.recipe.device import gpus_of_machine, on_cpu
from aworld_train.recipe.schema import Device, Recipe
from aworld_train.recipe.tree import KeyPath

TORCH, FLASH = "sdpa", "flash_attention_2"
_PACKAGES = {FLASH: "flash_attn", "flash_attention_3": "flash_attn_interface"}
_HUB_PACKAGE = "kernels"
"""Loads attention that is named as a repository of the hub, such as ``kernels-community/flash-attn2``."""


def attention_of(recipe: Recipe) -> str:
    """The recipe's; else flash attention where it is installed or nothing else is right; else torch's."""
    if recipe.model.attention is not None:
        return recipe.model.attention
    if on_cpu(recipe):
        return TORCH
    return FLASH if recipe.trainer.sequence_parallel > 1 or _is_installed(FLASH) else TORCH


def attention_faults(recipe: Recipe) -> Iterator[tuple[KeyPath, str]]:
    """Attention that would compute something else than it should, or that cannot be loaded on this machine."""
    attention, shared = attention_of(recipe), recipe.trainer.sequence_parallel
    key: KeyPath = ("model", "attention")
    if on_cpu(recipe):
        if package := _package_of(attention):
            yield (
                key,
                f"model.attention={attention} needs {package}, which computes on GPUs alone. Leave it out.",
            )
    elif shared > 1 and "flash" not in attention:
        yield (
            key,
            f"model.attention is {attention}, and trainer.sequence_parallel is {shared}: VeRL divides sequences with "
            "flash attention alone, and would compute wrong probabilities. Leave it out, or set "
            "trainer.sequence_parallel to 1.",
        )
    elif gpus_of_machine(Device.cuda) and not _is_installed(attention):
        yield (
            key,
            f"The trainer is to compute attention with {attention}, which needs the Python package "
            f"{_package_of(attention)}, and this Python has none. Install it (docs/install.md), or set "
            "model.attention=sdpa and trainer.sequence_parallel=1.",
        )


def _is_installed(attention: str) -> bool:
    package = _package_of(attention)
    return not package or find_spec(package) is not None


def _package_of(attention: str) -> str:
    """The package that it needs beside torch."""
    return _HUB_PACKAGE if "/" in attention else _PACKAGES.get(attention, "")
