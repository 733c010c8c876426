"""The training engine on CPU computes what VeRL's does."""

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
