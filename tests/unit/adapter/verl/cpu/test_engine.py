"""The training engine on CPU computes what VeRL's does."""

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("verl")

import torch
from verl.utils.torch_functional import logprobs_from_logits_v2

from aworld_train.adapter.verl.cpu import engine


@pytest.mark.parametrize("shape", [(1, 7), (1200, 7), (3, 5, 7)], ids=str)
def test_log_probabilities_and_their_gradients_are_those_of_verl(shape: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(shape, generator=generator)
    labels = torch.randint(shape[-1], shape[:-1], generator=generator)
    found, gradients = [], []
    for function in (engine.logprobs_from_logits, logprobs_from_logits_v2):
        leaf = logits.clone().requires_grad_()
        logprobs = function(leaf, labels)
        logprobs.square().sum().backward()
        found.append(logprobs.detach())
        gradients.append(leaf.grad)
    assert torch.equal(*found)
    assert torch.equal(*gradients)


def test_verl_still_takes_token_by_token_and_its_engine_uses_our_function(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With a version of VeRL that does not, the replacement can go."""
    counts = []
    logsumexp = torch.logsumexp
    monkeypatch.setattr(torch, "logsumexp", lambda *a, **k: counts.append(1) or logsumexp(*a, **k))
    logprobs_from_logits_v2(torch.zeros(9, 4), torch.zeros(9, dtype=torch.long))
    assert len(counts) == 9
    assert engine.transformer_impl.logprobs_from_logits is engine.logprobs_from_logits


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
