"""What VeRL finds under its own names once the registration is imported."""

import importlib
import importlib.metadata
import sys
from types import SimpleNamespace
from typing import Any

import pytest
import verl.utils.distributed
from verl.workers.rollout.base import _ROLLOUT_REGISTRY
from verl.workers.rollout.replica import RolloutReplicaRegistry

from aworld_train.adapter.verl.cpu import vllm_distribution
from aworld_train.adapter.verl.cpu.platform import initialize_process_group
from aworld_train.adapter.verl.cpu.rollout import TransformersReplica

REGISTRATION = "aworld_train.adapter.verl.cpu.registration"
ROLLOUTS = {
    ("vllm", "async"): "aworld_train.adapter.verl.cpu.vllm_rollout.CpuVllmRollout",
    ("transformers", "async"): "aworld_train.adapter.verl.cpu.rollout.TransformersRollout",
}


@pytest.mark.parametrize("workers", [SimpleNamespace(), None], ids=["trains", "does not train"])
def test_rollouts_are_known_by_name_and_process_groups_are_made_for_the_cpu(
    workers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key in ROLLOUTS:
        monkeypatch.setitem(_ROLLOUT_REGISTRY, key, "")
    monkeypatch.setattr(RolloutReplicaRegistry, "_registry", dict(RolloutReplicaRegistry._registry))
    monkeypatch.setattr(verl.utils.distributed, "initialize_global_process_group_ray", None)
    monkeypatch.setattr(importlib.metadata, "version", importlib.metadata.version)
    monkeypatch.setitem(sys.modules, "verl.workers.engine_workers", workers)
    monkeypatch.delitem(sys.modules, REGISTRATION, raising=False)
    importlib.import_module(REGISTRATION)
    assert _ROLLOUT_REGISTRY.items() >= ROLLOUTS.items()
    assert RolloutReplicaRegistry.get("transformers") is TransformersReplica
    assert verl.utils.distributed.initialize_global_process_group_ray is initialize_process_group
    assert importlib.metadata.version is vllm_distribution._version_of
    if workers:
        assert workers.initialize_global_process_group_ray is initialize_process_group
