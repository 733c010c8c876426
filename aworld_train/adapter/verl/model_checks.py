"""Checks a recipe against the shape of its model and adapter, of which only the JSON files are read."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from aworld_train.adapter.verl.lora_weights import OTHER_FORMS
from aworld_train.adapter.verl.name_checks import value_at
from aworld_train.json_lines import read_json
from aworld_train.model.files import local_folder
from aworld_train.recipe.schema import Engine, Recipe
from aworld_train.recipe.tree import KeyPath, dotted

FUSED = "actor_rollout_ref.model.use_fused_kernels"
_OVERRIDES = "actor_rollout_ref.model.override_config"
_EXPERTS = "actor_rollout_ref.rollout.expert_parallel_size"
_ADAPTER = "actor_rollout_ref.model.lora_adapter_path"
_EXCLUDED = "actor_rollout_ref.model.exclude_modules"
_EMBEDDINGS = (
    *("model.embed_tokens", "model.language_model.embed_tokens", "language_model.model.embed_tokens"),
    *("transformer.wte", "transformer.wpe", "gpt_neox.embed_in", "transformer.word_embeddings"),
)
"""Where models have their embeddings; PEFT compares an expression in ``target_modules`` with the whole name."""


def model_faults(recipe: Recipe) -> Iterator[tuple[KeyPath, str]]:
    """What does not fit the model, which is not fetched: the recipe's key, and one sentence for each."""
    yield from _lora(recipe)
    config = text_config(recipe)
    if config is None or value_at(recipe.raw, _OVERRIDES):
        return
    yield from _length(recipe, config)
    yield from _head(recipe)
    yield from _experts(recipe, config)
    heads, kv_heads = whole(config, "num_attention_heads"), whole(config, "num_key_value_heads")
    if heads is None:
        return
    # vllm/config/model.py, verify_with_parallel_config, and vllm/model_executor/models: each GPU has some key and value
    # heads, or several GPUs have the same one; verl/models/transformers/monkey_patch.py has the same rules.
    for key, size in (
        (("rollout", "tensor_parallel"), recipe.rollout.tensor_parallel),
        (("trainer", "sequence_parallel"), recipe.trainer.sequence_parallel),
    ):
        must_divide = f"`{dotted(key)}` ({size}) must divide the"
        if heads % size:
            yield key, f"{must_divide} {heads} attention heads of the model"
        elif kv_heads and max(kv_heads, size) % min(kv_heads, size):
            yield key, f"{must_divide} {kv_heads} key and value heads of the model, or be a multiple of them"


def _lora(recipe: Recipe) -> Iterator[tuple[KeyPath, str]]:
    """Adapters that ``lora_weights`` cannot write, which it would say at the first checkpoint."""
    if recipe.model.lora.rank == 0:
        return
    key: KeyPath = ("model", "lora", "target_modules")
    path = value_at(recipe.raw, _ADAPTER)
    settings: Mapping[str, Any] = {
        "target_modules": recipe.model.lora.target_modules,
        "exclude_modules": value_at(recipe.raw, _EXCLUDED),
    }
    if path is not None:
        key = ("verl", *_ADAPTER.split("."))
        settings = read_json(Path(str(path)).expanduser() / "adapter_config.json")
    targets, excluded = (settings.get(f"{name}_modules") or () for name in ("target", "exclude"))
    if any(_is_target(name, targets) and not _is_target(name, excluded) for name in _EMBEDDINGS):
        yield (
            key,
            f"`{dotted(key)}`: {targets!r} takes in the embeddings, and a checkpoint has adapters of linear layers "
            "alone; leave them out, or take all-linear.",
        )
    if other := [name for name in OTHER_FORMS if settings.get(name)]:
        yield (
            key,
            f"`{dotted(key)}`: the adapter {path} has {' and '.join(other)}, which a checkpoint cannot be "
            "merged with; take one of plain LoRA, of one rank.",
        )


def _is_target(name: str, targets: Any) -> bool:
    """Whether PEFT gives the module an adapter (``peft/tuners/tuners_utils.py``, ``check_target_module_exists``)."""
    if not isinstance(targets, str):
        return any(name == target or name.endswith(f".{target}") for target in targets)
    try:
        return re.fullmatch(targets, name) is not None
    except re.error:
        return False


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
    config = _config(recipe)
    text = config and config.get("text_config")
    return text if isinstance(text, Mapping) else config


def ties_head(recipe: Recipe) -> bool | None:
    """None if that is not known."""
    config = _config(recipe)
    tied = config and config.get("tie_word_embeddings")
    return tied if isinstance(tied, bool) else None


def sees_images(recipe: Recipe) -> bool:
    """Whether the model has a part for images, as far as that is known."""
    return isinstance((_config(recipe) or {}).get("vision_config"), Mapping)


def _config(recipe: Recipe) -> Mapping[str, Any] | None:
    folder = local_folder(recipe.model.location)
    return read_json(folder / "config.json") or None if folder else None


def whole(config: Mapping[str, Any], key: str) -> int | None:
    """A positive whole number of a configuration; None if it has none."""
    value = config.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
