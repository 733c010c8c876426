"""The training engine on CPU computes what VeRL's does."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("verl")

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from verl.utils import fsdp_utils

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
    monkeypatch.setattr(
        engine.SharedPrefixEngine, "__init__", lambda self, *arguments, **options: threads.extend(arguments)
    )
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 5)
    monkeypatch.setattr(engine, "threads_per_process", lambda ranks: 10 * ranks)
    monkeypatch.setattr(torch, "set_num_threads", threads.append)
    engine.CpuFSDPEngine(1)
    assert threads == [1, 50]


def test_weights_that_are_set_aside_do_not_change_with_the_model(tmp_path: Path) -> None:
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        module = torch.nn.Linear(2, 1)
        fully_shard(module, mesh=init_device_mesh("cpu", (1,)))
        copied = [save(module)[0] for save in (fsdp_utils.fsdp2_sharded_save_to_cpu, engine._shards_of)]
        before = module.weight.to_local().clone()
        with torch.no_grad():
            module.weight.add_(1)
    finally:
        torch.distributed.destroy_process_group()
    ours, of_verl = [weights["weight"][0] for weights in copied]
    assert torch.equal(ours, before)
    assert not torch.equal(of_verl, before), "VeRL copies weights itself now: copied_weights is not needed"
