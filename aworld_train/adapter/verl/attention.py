"""How the trainer computes attention on GPUs, by transformers' name for it.

VeRL asks for ``flash_attention_2`` by default. Where it is not installed, models of the families that a test compares
use torch's own flash attention (``varlen_attention``), others ``sdpa``, which is right for packed rows too and several
times slower. Where GPUs share sequences ``sdpa`` is wrong: VeRL 0.9.1 changes flash attention alone for that, and says
nothing (verl/models/transformers/monkey_patch.py).
"""

from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import Any

from aworld_train.adapter.verl.model_checks import FUSED, sees_images, text_config
from aworld_train.adapter.verl.name_checks import value_at
from aworld_train.recipe.device import device_of, gpus_of_machine, on_cpu
from aworld_train.recipe.schema import Device, Method, Recipe, Strategy
from aworld_train.recipe.tree import KeyPath

TORCH, FLASH, VARLEN, TRIE = "sdpa", "flash_attention_2", "torch_varlen", "trie"
VARLEN_MODULE = "aworld_train.adapter.verl.varlen_attention"
"""Makes ``torch_varlen`` known to transformers where it is imported."""
TRIE_MODULE = "aworld_train.adapter.verl.shared_prefix"
"""Makes ``trie`` known to transformers, and its engine to VeRL on GPUs, where it is imported."""
VARLEN_FAMILIES = ("llama", "mistral", "qwen2", "qwen3")
"""``model_type`` of the models whose attention is nothing but causal, with a window or without."""
_PACKAGES = {FLASH: "flash_attn", "flash_attention_3": "flash_attn_interface"}
_HUB_PACKAGE = "kernels"
"""Loads attention that is named as a repository of the hub, such as ``kernels-community/flash-attn2``."""


def attention_of(recipe: Recipe) -> str:
    """The recipe's; else that of tries, flash attention where it is installed or nothing else is right, or torch's."""
    if recipe.model.attention is not None:
        return recipe.model.attention
    if recipe.trainer.shared_prefix:
        return TRIE
    if on_cpu(recipe):
        return TORCH
    if _is_installed(FLASH):
        return FLASH
    config = text_config(recipe)
    # A run decides it again when its model has been fetched.
    if device_of(recipe) is Device.cuda and (config is None or config.get("model_type") in VARLEN_FAMILIES):
        return VARLEN
    return FLASH if recipe.trainer.sequence_parallel > 1 else TORCH


def attention_remarks(recipe: Recipe) -> Iterator[str]:
    if (
        recipe.model.attention is None
        and not on_cpu(recipe)
        and recipe.trainer.strategy is not Strategy.megatron
        and not recipe.trainer.shared_prefix
    ):
        attention = attention_of(recipe)
        missing = "" if attention == FLASH else ", because flash-attn is not installed"
        yield f"The trainer computes attention with {attention} (model.attention){missing}."


def attention_faults(recipe: Recipe) -> Iterator[tuple[KeyPath, str]]:
    """Attention that would compute something else than it should, or that cannot be loaded on this machine."""
    attention, shared = attention_of(recipe), recipe.trainer.sequence_parallel
    key: KeyPath = ("model", "attention")
    if recipe.trainer.shared_prefix:
        return  # see ``shared_prefix_faults``
    if on_cpu(recipe):
        if package := "torch for CUDA" if attention == VARLEN else _package_of(attention):
            yield (
                key,
                f"model.attention={attention} needs {package}, which computes on GPUs alone. Leave it out.",
            )
    elif shared > 1 and "flash" not in attention and attention != VARLEN:
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


def shared_prefix_faults(recipe: Recipe) -> Iterator[tuple[KeyPath, str]]:
    if not recipe.trainer.shared_prefix and recipe.model.attention != TRIE:
        return
    key: KeyPath = ("trainer", "shared_prefix")
    config = text_config(recipe)
    if recipe.trainer.strategy is Strategy.megatron or recipe.trainer.sequence_parallel > 1:
        yield key, _refusal("needs whole rows on each rank (no Megatron, trainer.sequence_parallel=1)")
    elif recipe.model.attention is not None:
        yield key, _refusal("has an attention of its own, which model.attention would replace")
    if recipe.trainer.method is not Method.rl:
        yield key, _refusal("is for trainer.method=rl")
    for raw in (FUSED, "distillation.enabled"):
        if value_at(recipe.raw, raw) is True:
            yield key, _refusal(f"has one probability for each token, which verl.{raw} does not take")
    if config is not None and not _is_causal_alone(recipe, config):
        yield (
            key,
            _refusal(
                f"is right for models in which a token sees all tokens before it and nothing else ("
                f"{', '.join(VARLEN_FAMILIES)}, without images or a sliding window), and config.json says otherwise"
            ),
        )


def _refusal(reason: str) -> str:
    return f"trainer.shared_prefix {reason}. Leave it out."


def _is_causal_alone(recipe: Recipe, config: Mapping[str, Any]) -> bool:
    family = config.get("model_type")
    # Mistral has a window unless its configuration says null; Qwen names one that it may not use.
    has_window = config.get("use_sliding_window", family == "mistral") and config.get("sliding_window", True)
    return family in VARLEN_FAMILIES and not has_window and not sees_images(recipe)


def _is_installed(attention: str) -> bool:
    package = _package_of(attention)
    return not package or find_spec(package) is not None


def _package_of(attention: str) -> str:
    return _HUB_PACKAGE if "/" in attention else _PACKAGES.get(attention, "")
