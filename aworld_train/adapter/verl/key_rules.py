"""The keys that verl accepts beyond its default configuration and its dataclasses, each with the reason.

The rules describe verl 0.9.1; a test checks them against the installed source.
"""

from fnmatch import fnmatchcase
from typing import Any

from aworld_train.adapter.verl.config_classes import FieldType
from aworld_train.recipe.tree import KeyPath, dotted

# Maps whose keys verl passes on without checking them.
OPEN_MAPS = {
    "*.override_config": "changes to the Hugging Face model configuration",
    "*.override_optimizer_config": "arguments of the optimizer class",
    "*.engine_kwargs": "arguments of the inference or checkpoint engine, one map per engine",
    "data.apply_chat_template_kwargs": "arguments of the tokenizer's chat template",
    "data.mm_processor_kwargs": "arguments of the multimodal processor",
    "reward.custom_reward_function.reward_kwargs": "arguments of the reward function",
    "reward.reward_kwargs": "arguments of the reward manager",
    "trainer.v1.sampler.sampler_kwargs": "arguments of a custom sampler",
    "ray_kwargs.ray_init": "arguments of ray.init, runtime_env and its env_vars among them",
    "global_profiler.global_tool_config.nsys.*_nsight_options": "options of the nsys program",
    "global_profiler.global_tool_config.torch_memory.kw_args": "arguments of torch's memory recorder",
}
# Keys that verl reads although neither its default configuration nor a dataclass has them.
_READ_ANYWAY = {
    "data": {
        "cache_dir": "str",
        "chat_template_func": "str null",
        "filter_prompts": "bool",
        "need_tools_kwargs": "bool",
    },
    "reward": {
        "reward_kwargs": "map",
        "max_concurrent": "int",
        "max_rpm": "int null",
        "max_tpm": "int null",
        "estimated_tokens_per_request": "int",
        "timeout": "int float",
    },
    "reward.custom_reward_function": {"reward_kwargs": "map"},
    "trainer": {"remove_previous_ckpt_in_save": "bool"},
    "*.mixed_precision": {"param_dtype": "str", "reduce_dtype": "str", "buffer_dtype": "str"},
    "*.wrap_policy": {"disable": "bool", "transformer_layer_cls_to_wrap": "str list null"},
}
READ_ANYWAY: dict[str, dict[str, FieldType]] = {
    pattern: {key: FieldType(frozenset(kinds.split())) for key, kinds in keys.items()}
    for pattern, keys in _READ_ANYWAY.items()
}
# Keys that accept another type than that of their default.
ALSO_TAKES = {"data.train_files": {"list"}, "data.val_files": {"list"}, "trainer.logger": {"str"}}
# Sections that are still in verl's defaults and that its trainer no longer reads, with their replacement.
IGNORED_SECTIONS = {
    "custom_reward_function": "reward.custom_reward_function",
    "reward_model": "reward.reward_model",
    "sandbox_fusion": "reward.sandbox_fusion",
}
# Maps with names that the user chooses; each entry has the form of the named default entry.
NAMED_ENTRIES = {"distillation.teacher_models": "teacher_model"}


def is_open(path: KeyPath, default: Any, kind: FieldType) -> bool:
    """Whether any keys are allowed below ``path``: it is in ``OPEN_MAPS``, or a plain dict that is empty by default."""
    if any(fnmatchcase(dotted(path), pattern) for pattern in OPEN_MAPS):
        return True
    return "map" in kind.accepts and not kind.section and not default and not read_anyway(path)


def read_anyway(path: KeyPath) -> dict[str, FieldType]:
    """The keys that verl reads in the map at ``path`` in addition to those that it declares."""
    return next((keys for pattern, keys in READ_ANYWAY.items() if fnmatchcase(dotted(path), pattern)), {})
