"""The keys with which VeRL runs vLLM on CPU: what sleeps and packs weights on GPUs, and the size of the cache."""

import math
from typing import Any

import psutil

from aworld_train.adapter.verl.model_checks import text_config, whole
from aworld_train.recipe.schema import Recipe

_WORKER = "aworld_train.adapter.verl.cpu.vllm_worker.CpuWorkerExtension"
MEGABYTE = 1 << 20
_MIN_CACHE_BYTES = 256 * MEGABYTE
_MIN_BUCKET_MEGABYTES = 64
_NUMBER_BYTES = 4  # of float32


def engine_keys(recipe: Recipe) -> dict[str, Any]:
    return {
        "enable_sleep_mode": False,
        "engine_kwargs.vllm.worker_extension_cls": _WORKER,
        "engine_kwargs.vllm.kv_cache_memory_bytes": cache_bytes(recipe),
        "checkpoint_engine.update_weights_bucket_megabytes": _bucket_megabytes(recipe),
    }


def _bucket_megabytes(recipe: Recipe) -> int:
    """The shared memory through which weights go; the largest of them, the embedding, has to fit into it."""
    config = text_config(recipe) or {}
    size = (whole(config, "vocab_size") or 0) * (whole(config, "hidden_size") or 0)
    return max(_MIN_BUCKET_MEGABYTES, math.ceil(size * _NUMBER_BYTES / MEGABYTE))


def cache_bytes(recipe: Recipe) -> int:
    """What keys and values of all episodes at a time take, but no more than ``rollout.gpu_memory`` of the memory."""
    most = int(recipe.rollout.gpu_memory * psutil.virtual_memory().total)
    config = text_config(recipe) or {}
    layers, heads = whole(config, "num_hidden_layers"), whole(config, "num_attention_heads")
    width = whole(config, "hidden_size")
    if not layers or not heads or not width:
        return most
    size = (whole(config, "num_key_value_heads") or heads) * (whole(config, "head_dim") or width // heads)
    tokens = recipe.rollout.max_running * recipe.max_episode_tokens
    return min(max(2 * layers * size * _NUMBER_BYTES * tokens, _MIN_CACHE_BYTES), most)
