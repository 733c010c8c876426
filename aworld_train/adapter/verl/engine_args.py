"""The arguments of vLLM's or SGLang's engine that a recipe passes through, checked before the engine starts.

Names and types are read from the source of ``AsyncEngineArgs`` and ``ServerArgs``: importing an engine takes seconds.
Where it is not installed only the arguments that a recipe may not set are known.
"""

import ast
import json
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from aworld_train.adapter.verl.config_classes import (
    KINDS,
    FieldType,
    annotated_type,
    describe,
    in_words,
    kind_of,
)
from aworld_train.adapter.verl.name_checks import value_at
from aworld_train.errors import suggestion
from aworld_train.recipe.env_text import EnvText
from aworld_train.recipe.interpolation import has_lookup
from aworld_train.recipe.schema import Engine, Recipe
from aworld_train.recipe.tree import KeyPath, dotted

SECTION: KeyPath = ("rollout", "engine_args")
_RAW = "verl.actor_rollout_ref.rollout"

_MODEL = "the engine has the model of `model.path`, which is trained"
_SAMPLED = (
    "tokens are sampled from the distribution that the trainer computes, the model's at rollout.temperature"
)
_GPUS = (
    "each process samples on the GPU that it trains on; the recipe has rollout.tensor_parallel and cluster"
)
_LORA = "the recipe's model.lora says which adapters there are"
_WEIGHTS = "VeRL brings the trainer's weights to the engine by it"
_IN_RECIPE, _IN_VERL = "the recipe has a key for it, `{}`", f"VeRL has a key for it, `{_RAW}.{{}}`"


def _owned(
    by_reason: Mapping[str, str], *, in_recipe: Mapping[str, str], in_verl: Mapping[str, str]
) -> dict[str, str]:
    """Each argument with its reason, from the names of the arguments by reason, and the keys that stand for others."""
    return {
        **{name: reason for reason, names in by_reason.items() for name in names.split()},
        **{name: _IN_RECIPE.format(key) for name, key in in_recipe.items()},
        **{name: _IN_VERL.format(key) for name, key in in_verl.items()},
    }


OWNED_ARGS = _owned(
    {
        _MODEL: "model model_weights served_model_name tokenizer tokenizer_revision skip_tokenizer_init "
        "hf_config_path hf_overrides revision code_revision runner convert",
        "it is a secret: export it as HF_TOKEN, which VeRL's processes inherit": "hf_token",
        "training rows have the probabilities with which tokens were sampled": "logprobs_mode",
        _SAMPLED: "logits_processors generation_config override_generation_config",
        _LORA: "enable_lora max_loras max_lora_rank fully_sharded_loras default_mm_loras lora_target_modules",
        _WEIGHTS: "worker_extension_cls weight_transfer_config",
        "VeRL reaches the engine's workers as processes": "distributed_executor_backend",
        _GPUS: "pipeline_parallel_size data_parallel_size data_parallel_size_local data_parallel_rank "
        "data_parallel_start_rank data_parallel_address data_parallel_rpc_port data_parallel_backend "
        "data_parallel_hybrid_lb data_parallel_external_lb data_parallel_multi_port_external_lb device_ids nnodes "
        "node_rank master_addr master_port",
        "it is the sum of dataset.max_prompt_tokens and rollout.max_response_tokens; more is "
        f"{_RAW}.max_model_len": "max_model_len",
    },
    in_recipe={
        "trust_remote_code": "model.trust_remote_code",
        "dtype": "rollout.dtype",
        "seed": "trainer.seed",
        "max_num_seqs": "rollout.max_running",
        "gpu_memory_utilization": "rollout.gpu_memory",
        "tensor_parallel_size": "rollout.tensor_parallel",
    },
    in_verl={
        "enable_expert_parallel": "expert_parallel_size",
        "enable_return_routed_experts": "enable_rollout_routing_replay",
        "limit_mm_per_prompt": "limit_images",
        "kv_transfer_config": "disaggregation",
        "profiler_config": "profiler",
        **{
            name: name for name in ("load_format", "quantization", "enforce_eager", "cudagraph_capture_sizes")
        },
        **{name: name for name in ("enable_chunked_prefill", "enable_prefix_caching", "enable_sleep_mode")},
        **{name: name for name in ("max_num_batched_tokens", "scheduling_policy", "disable_log_stats")},
    },
)
"""vLLM's that a recipe may not set, with the reason as a part of a sentence; a test holds them against VeRL's."""

SGLANG_OWNED_ARGS = _owned(
    {
        _MODEL: "model_path tokenizer_path served_model_name skip_tokenizer_init revision json_model_override_args "
        "is_embedding weight_version",
        "VeRL chooses where its servers listen": "host port nccl_port",
        "an episode must have room for dataset.max_prompt_tokens and rollout.max_response_tokens": "context_length",
        "training rows have the prompts with which tokens were sampled": "allow_auto_truncate",
        _SAMPLED: "sampling_defaults preferred_sampling_params enable_custom_logit_processor "
        "speculative_accept_threshold_single speculative_accept_threshold_acc",
        _LORA: "enable_lora max_lora_rank lora_target_modules lora_paths",
        _WEIGHTS: "custom_weight_loader enable_memory_saver enable_weights_cpu_backup",
        _GPUS: "dp_size pp_size attn_cp_size nnodes node_rank dist_init_addr base_gpu_id gpu_id_step device use_ray "
        "disaggregation_mode",
    },
    in_recipe={
        "trust_remote_code": "model.trust_remote_code",
        "dtype": "rollout.dtype",
        "random_seed": "trainer.seed",
        "max_running_requests": "rollout.max_running",
        "mem_fraction_static": "rollout.gpu_memory",
        "tp_size": "rollout.tensor_parallel",
    },
    in_verl={
        "ep_size": "expert_parallel_size",
        "enable_return_routed_experts": "enable_rollout_routing_replay",
        "disable_cuda_graph": "enforce_eager",
        "load_format": "load_format",
        "quantization": "quantization",
    },
)
"""As ``OWNED_ARGS``, for SGLang 0.5.12."""


class _Known(NamedTuple):
    title: str
    file: str
    owned: Mapping[str, str]
    listed_by: str


_ENGINES = {
    Engine.vllm: _Known("vLLM", "engine/arg_utils.py", OWNED_ARGS, "vllm serve --help=all"),
    Engine.sglang: _Known(
        "SGLang", "srt/server_args.py", SGLANG_OWNED_ARGS, "python -m sglang.launch_server --help"
    ),
}
_CLASSES = ("EngineArgs", "AsyncEngineArgs", "ServerArgs")


def engine_arg_faults(recipe: Recipe) -> Iterator[tuple[KeyPath, str]]:
    engine = recipe.rollout.engine
    if engine not in _ENGINES:
        if recipe.rollout.engine_args:
            yield (
                SECTION,
                f"`rollout.engine_args` are arguments of vLLM or SGLang, and rollout.engine is {engine.value}; leave "
                "them out, or set rollout.engine=vllm",
            )
        return
    raw_section = ("verl", "actor_rollout_ref", "rollout", "engine_kwargs", engine.value)
    for section, arguments in (
        (SECTION, recipe.rollout.engine_args),
        (raw_section, value_at(recipe.raw, ".".join(raw_section[1:]))),
    ):
        for name, value in arguments.items() if isinstance(arguments, Mapping) else ():
            sentence = _fault(engine, f"{dotted(section)}.{name}", name, value)
            if sentence is not None:
                yield (*section, name), sentence


def _fault(engine: Engine, key: str, name: str, value: Any) -> str | None:
    title, _, owned, listed_by = _ENGINES[engine]
    if reason := owned.get(name.replace("-", "_")):
        return f"`{key}` cannot be set: {reason}."
    if name.replace("-", "_") == "speculative_config" and _accepts_at_random(value):
        return f"`{key}.rejection_sample_method` cannot be synthetic: {_SAMPLED}. Leave it out."
    known = engine_args(engine)
    if known is None:
        return None
    if name not in known:
        listed = f" `{listed_by}` lists those it has."
        hint = suggestion(name.replace("-", "_"), set(known) - set(owned), listed)
        return f"`{key}`: {title}'s engine has no argument {name!r}.{hint}"
    accepts = known[name]
    if not accepts or value is None or _is_open(value):
        return None
    if kind_of(value) not in accepts:
        return f"`{key}` takes {in_words(accepts)}, not {describe(value)}"
    return None


def _accepts_at_random(config: Any) -> bool:
    """Whether drafted tokens are accepted at a given rate, whatever their probability (``config/speculative.py``)."""
    if isinstance(config, str) and not _is_open(config):
        try:
            config = json.loads(config)
        except ValueError:
            return False
    return isinstance(config, Mapping) and config.get("rejection_sample_method") == "synthetic"


def _is_open(value: Any) -> bool:
    return isinstance(value, EnvText) or (isinstance(value, str) and has_lookup(value))


def engine_args(engine: Engine) -> Mapping[str, frozenset[str]] | None:
    """The arguments of an installed engine with the kinds of value that each takes (none: any)."""
    spec = find_spec(engine.value)
    if spec is None or spec.origin is None:
        return None
    return read_engine_args(Path(spec.origin).parent / _ENGINES[engine].file)


@cache
def read_engine_args(source: Path) -> Mapping[str, frozenset[str]] | None:
    """As ``engine_args``, of the file in which they are defined; None if it is not as expected."""
    try:
        tree = ast.parse(source.read_text(encoding="utf-8"))
    except (OSError, SyntaxError):
        return None
    fields = {
        item.target.id: annotated_type(item.annotation, _named).accepts
        for owner in tree.body
        if isinstance(owner, ast.ClassDef) and owner.name in _CLASSES
        for item in owner.body
        if isinstance(item, ast.AnnAssign)
        and isinstance(item.target, ast.Name)
        and not item.target.id.startswith("_")
    }
    return fields or None


def _named(name: str) -> FieldType:
    is_map = name in ("dict", "Dict") or name.endswith("Config")
    return FieldType(frozenset({"map", "str"}) if is_map else KINDS.get(name, frozenset()))  # a text is JSON
