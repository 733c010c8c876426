"""Checks a recipe against the shape of its model, of which only ``config.json`` is read."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from aworld_train.adapter.verl.name_checks import value_at
from aworld_train.model.files import local_folder
from aworld_train.recipe.schema import Engine, Recipe
from aworld_train.recipe.tree import KeyPath

FUSED = "actor_rollout_ref.model.use_fused_kernels"
_OVERRIDES = "actor_rollout_ref.model.override_config"
_EXPERTS = "actor_rollout_ref.rollout.expert_parallel_size"


def model_faults(recipe: Recipe) -> Iterator[tuple[KeyPath, str]]:
    """What does not fit the model, which is not fetched: the recipe's key, and one sentence for each."""
    config = text_config(recipe)
    if config is None or value_at(recipe.raw, _OVERRIDES):
        return
    yield from _length(recipe, config)
    yield from _head(recipe)
    yield from _experts(recipe, config)
    heads, kv_heads = whole(config, "num_attention_heads"), whole(config, "num_key_value_heads")
    if heads is None:
        return
    tensor_parallel, sequence_parallel = recipe.rollout.tensor_parallel, recipe.trainer.sequence_parallel
    if heads % tensor_parallel:  # vllm/config/model.py, verify_with_parallel_config
        yield (
            ("rollout", "tensor_parallel"),
            f"`rollout.tensor_parallel` ({tensor_parallel}) must divide the {heads} attention heads of the model",
        )
    elif kv_heads and max(kv_heads, tensor_parallel) % min(kv_heads, tensor_parallel):
        # vllm/model_executor/models: each GPU has some key and value heads, or several GPUs have the same one.
        yield (
            ("rollout", "tensor_parallel"),
            f"`rollout.tensor_parallel` ({tensor_parallel}) must divide the {kv_heads} key and value heads of the "
            "model, or be a multiple of them",
        )
    if heads % sequence_parallel:  # verl/models/transformers/monkey_patch.py, as the next one
        yield (
            ("trainer", "sequence_parallel"),
            f"`trainer.sequence_parallel` ({sequence_parallel}) must divide the {heads} attention heads of the model",
        )
    elif kv_heads and kv_heads % sequence_parallel and sequence_parallel % kv_heads:
        yield (
            ("trainer", "sequence_parallel"),
            f"`trainer.sequence_parallel` ({sequence_parallel}) must divide the {kv_heads} key and value heads of the "
            "model, or be a multiple of them",
        )


def _length(recipe: Recipe, config: Mapping[str, Any]) -> Iterator[tuple[KeyPath, str]]:
    longest = recipe.max_episode_tokens
    own_engine = recipe.rollout.engine is Engine.transformers
    # verl/workers/rollout/utils.py, get_max_position_embeddings: VeRL's engines get no stretched context.
    context = _stretched(config) if own_engine else whole(config, "max_position_embeddings")
    if context is not None and longest > context:
        yield (
            ("rollout", "max_response_tokens"),
            f"the longest episode has {longest} tokens (`dataset.max_prompt_tokens` and "
            f"`rollout.max_response_tokens`), and the model's context {context} (max_position_embeddings in its "
            f"config.json{'' if own_engine else ', which VeRL takes without a factor of its rope'}); lower one of them",
        )


def _head(recipe: Recipe) -> Iterator[tuple[KeyPath, str]]:
    """verl/utils/fsdp_utils.py: a head of its own is divided among GPUs, and these kernels multiply with its part."""
    if value_at(recipe.raw, FUSED) is True and ties_head(recipe) is False:
        yield (
            ("verl", *FUSED.split(".")),
            f"verl.{FUSED} is true, and the model's output layer is not its embedding (tie_word_embeddings in its "
            "config.json): VeRL 0.9.1 ends at its first forward pass then. Leave the key out.",
        )


def _experts(recipe: Recipe, config: Mapping[str, Any]) -> Iterator[tuple[KeyPath, str]]:
    size = value_at(recipe.raw, _EXPERTS)
    if isinstance(size, int) and size > 1 and not has_experts(config):
        yield (
            ("verl", *_EXPERTS.split(".")),
            f"verl.{_EXPERTS} is {size}, and the model has no experts that GPUs could share (config.json): vLLM would "
            "ignore it. Leave the key out; rollout.tensor_parallel divides the layers.",
        )


def has_experts(config: Mapping[str, Any]) -> bool:
    """Whether a configuration is of a mixture of experts."""
    return any("expert" in key for key in config)


def _stretched(config: Mapping[str, Any]) -> int | None:
    """The most tokens that the model takes, with the stretch of its positions that its configuration has."""
    positions = whole(config, "max_position_embeddings")
    rope = config.get("rope_parameters") or config.get("rope_scaling")
    if positions is None or not isinstance(rope, Mapping):
        return positions
    factor = rope.get("factor")
    original = rope.get("original_max_position_embeddings")
    if not isinstance(factor, int | float) or isinstance(factor, bool):
        return positions
    return max(positions, int((original if isinstance(original, int) else positions) * factor))


def text_config(recipe: Recipe) -> Mapping[str, Any] | None:
    """The configuration of the model's language part; None if it is not on this machine."""
    config = _config(recipe)
    text = config and config.get("text_config")
    return text if isinstance(text, Mapping) else config


def ties_head(recipe: Recipe) -> bool | None:
    """Whether the model's output layer is its embedding; None if that is not known."""
    config = _config(recipe)
    tied = config and config.get("tie_word_embeddings")
    return tied if isinstance(tied, bool) else None


def sees_images(recipe: Recipe) -> bool:
    """Whether the model has a part for images, as far as that is known."""
    return isinstance((_config(recipe) or {}).get("vision_config"), Mapping)


def _config(recipe: Recipe) -> Mapping[str, Any] | None:
    folder = local_folder(recipe.model.location)
    if folder is None:
        return None
    try:
        config = json.loads((folder / "config.json").read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return config if isinstance(config, Mapping) else None


def whole(config: Mapping[str, Any], key: str) -> int | None:
    """A positive whole number of a configuration; None if it has none."""
    value = config.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
