"""The training engine on CPU computes what VeRL's does."""

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("verl")

import torch

from aworld_train.adapter.verl.cpu import engine


def test_a_model_is_sharded_in_float32_with_its_own_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    monkeypatch.setattr(engine, "apply_fsdp2", lambda *arguments: calls.append(arguments))
    monkeypatch.setattr(engine, "fsdp2_load_full_state_dict", lambda *arguments: calls.append(arguments))
    made: Any = object.__new__(engine.CpuFSDPEngine)
    made.device_mesh, made.engine_config = "mesh", SimpleNamespace(reshard_after_forward="reshard")
    module = torch.nn.Linear(2, 1)
    assert made._build_fsdp_module(module) is module
    assert (made._autocast_dtype, made.scaler) == (torch.float32, None)
    policy = engine.MixedPrecisionPolicy(torch.float32, torch.float32, cast_forward_inputs=True)
    options = {"mesh": "mesh", "mp_policy": policy, "reshard_after_forward": "reshard"}
    (sharded, loaded) = calls
    assert sharded == (module, options, made.engine_config)
    assert (loaded[0], loaded[2:]) == (module, ("mesh", None))
    assert torch.equal(loaded[1]["weight"], module.weight)


def test_ranks_share_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []
    parent = engine.FSDPEngineWithLMHead
    monkeypatch.setattr(parent, "__init__", lambda self, *arguments, **options: threads.extend(arguments))
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 5)
    monkeypatch.setattr(engine, "threads_per_process", lambda ranks: 10 * ranks)
    monkeypatch.setattr(torch, "set_num_threads", threads.append)
    engine.CpuFSDPEngine(1)
    assert threads == [1, 50]
