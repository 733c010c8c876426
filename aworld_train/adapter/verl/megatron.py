"""The strategy megatron: the keys with which VeRL trains by Megatron-Core, and what it cannot use.

Weights come from the model's folder and go back to it by Megatron-Bridge. No run of ours has used it: these are VeRL's
own keys, with the values of its examples.
"""

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

from aworld_train.adapter.verl.model_checks import text_config, whole
from aworld_train.adapter.verl.recipe_keys import ACTOR
from aworld_train.recipe.device import device_of, gpus_of_machine
from aworld_train.recipe.schema import Device, LauncherName, Offload, Recipe
from aworld_train.recipe.tree import KeyPath

_PACKAGES = {
    "megatron.core": "megatron-core",
    "megatron.bridge": "megatron-bridge",
    "transformer_engine": "transformer-engine",
}
_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")
"""What the configurations of Qwen, Mixtral and DeepSeek call the number of a layer's experts."""


def megatron_keys(recipe: Recipe) -> dict[str, Any]:
    trainer, section = recipe.trainer, f"{ACTOR}.megatron"
    return {
        f"{ACTOR}.strategy": "megatron",
        # Else as many as tensor_parallel, by which the experts' GPUs would have to be divided as well.
        f"{section}.expert_tensor_parallel_size": 1,
        f"{section}.param_offload": trainer.offload in (Offload.params, Offload.all),
        f"{section}.optimizer_offload": trainer.offload in (Offload.optimizer, Offload.all),
        f"{section}.seed": trainer.seed,
        f"{section}.override_transformer_config.recompute_granularity": "full",
        f"{section}.override_transformer_config.recompute_method": "uniform",
        f"{section}.override_transformer_config.recompute_num_layers": 1,
    }


def megatron_faults(recipe: Recipe) -> Iterator[tuple[KeyPath, str]]:
    key: KeyPath = ("trainer", "strategy")
    if device_of(recipe) is not Device.cuda:
        yield (
            key,
            "trainer.strategy=megatron trains on NVIDIA GPUs alone. Leave it out, or set cluster.device=cuda.",
        )
    elif missing := _missing(recipe):
        yield (
            key,
            f"trainer.strategy=megatron needs the Python package {missing}, and this Python has none. Install what "
            "`verl[megatron]` names, or leave the key out for fsdp2.",
        )
    if recipe.model.lora.rank > 0:
        yield (
            ("model", "lora", "rank"),
            "model.lora is trained by trainer.strategy=fsdp2 alone. Set model.lora.rank=0, or leave the strategy out.",
        )
    if recipe.model.attention is not None:
        yield (
            ("model", "attention"),
            "model.attention is transformers' name for it, and Megatron has attention of its own: "
            "verl.actor_rollout_ref.actor.megatron.override_transformer_config.attention_backend, flash by default.",
        )
    yield from _sizes(recipe)


def _missing(recipe: Recipe) -> str | None:
    """A package that a run here would lack; none on a machine without GPUs, and for a cluster's own image."""
    of_cluster = recipe.cluster.launcher in (LauncherName.ray, LauncherName.kubernetes)
    if of_cluster or not gpus_of_machine(Device.cuda):
        return None
    return next((name for module, name in _PACKAGES.items() if not _is_there(module)), None)


def _is_there(module: str) -> bool:
    parent = module.partition(".")[0]
    return find_spec(parent) is not None and find_spec(module) is not None


def _sizes(recipe: Recipe) -> Iterator[tuple[KeyPath, str]]:
    """What Megatron-Core asserts when it builds the model (megatron/core/transformer/transformer_config.py)."""
    config, sizes = text_config(recipe), recipe.trainer.megatron
    if config is None:
        return
    experts = next((count for name in _EXPERTS if (count := whole(config, name))), None)
    heads, kv_heads = whole(config, "num_attention_heads"), whole(config, "num_key_value_heads")
    for name, size, count, what in (
        ("tensor_parallel", sizes.tensor_parallel, heads, "attention heads"),
        ("tensor_parallel", sizes.tensor_parallel, kv_heads, "key and value heads"),
        ("pipeline_parallel", sizes.pipeline_parallel, whole(config, "num_hidden_layers"), "layers"),
        ("expert_parallel", sizes.expert_parallel, experts, "experts of a layer"),
    ):
        if count and count % size:
            yield (
                ("trainer", "megatron", name),
                f"`trainer.megatron.{name}` ({size}) must divide the {count} {what} of the model",
            )
    if sizes.expert_parallel > 1 and experts is None:
        yield (
            ("trainer", "megatron", "expert_parallel"),
            f"`trainer.megatron.expert_parallel` is {sizes.expert_parallel}, and the model has no experts "
            "(config.json)",
        )
