"""Log-probabilities are those of VeRL in fp32, and in bf16 they are not rounded to bf16."""

import pytest
import torch
from verl.utils import torch_functional
from verl.utils.torch_functional import logprobs_from_logits_v2
from verl.workers.engine.fsdp import transformer_impl

from aworld_train.adapter.verl.logprobs import logprobs_from_logits, logsumexp


@pytest.mark.parametrize("shape", [(1, 7), (1200, 7), (3, 5, 7)], ids=str)
def test_log_probabilities_and_their_gradients_are_those_of_verl(shape: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(shape, generator=generator)
    labels = torch.randint(shape[-1], shape[:-1], generator=generator)
    found, gradients = [], []
    for function in (logprobs_from_logits, logprobs_from_logits_v2):
        leaf = logits.clone().requires_grad_()
        logprobs = function(leaf, labels)
        logprobs.square().sum().backward()
        found.append(logprobs.detach())
        gradients.append(leaf.grad)
    assert torch.equal(*found)
    assert torch.equal(*gradients)


def test_verl_still_takes_token_by_token_and_its_engines_use_our_function(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With a version of VeRL that does not, the replacement can go."""
    counts = []
    logsumexp = torch.logsumexp
    monkeypatch.setattr(torch, "logsumexp", lambda *a, **k: counts.append(1) or logsumexp(*a, **k))
    logprobs_from_logits_v2(torch.zeros(9, 4), torch.zeros(9, dtype=torch.long))
    assert len(counts) == 9
    assert torch_functional.logprobs_from_logits is logprobs_from_logits
    assert transformer_impl.logprobs_from_logits is logprobs_from_logits


def test_of_logits_in_bf16_they_are_computed_in_fp32_with_the_same_gradients() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = (4 * torch.randn(1100, 50, generator=generator)).to(torch.bfloat16)
    labels = torch.randint(50, (1100,), generator=generator)
    exact_leaf, leaf = logits.float().requires_grad_(), logits.clone().requires_grad_()
    exact, found = (
        exact_leaf.log_softmax(-1).gather(-1, labels[:, None])[:, 0],
        logprobs_from_logits(leaf, labels),
    )
    assert found.dtype is torch.float32 and torch.allclose(found, exact, atol=1e-5)
    rounded = logprobs_from_logits_v2(logits, labels)
    assert (rounded.float() - exact).abs().max() > 0.01, "then VeRL's can be used again"
    found.square().sum().backward()
    exact.square().sum().backward()
    assert leaf.grad is not None and leaf.grad.dtype is torch.bfloat16
    assert torch.allclose(leaf.grad.float(), exact_leaf.grad, atol=0.1, rtol=0.01)


def test_on_the_way_back_logits_in_fp32_are_made_anew() -> None:
    """What is kept between is the model's own logits: nothing of four bytes for each of their entries."""
    kept: list[torch.Tensor] = []
    logits = torch.randn(1024, 64).to(torch.bfloat16).requires_grad_()

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        logprobs_from_logits(logits, torch.zeros(1024, dtype=torch.long))
    assert not [tensor for tensor in kept if tensor.dtype is torch.float32 and tensor.numel() >= 512 * 64]


def test_a_sum_of_exponentials_of_logits_in_bf16_is_computed_in_fp32_with_its_gradient() -> None:
    logits = (4 * torch.randn(1100, 50, generator=torch.Generator().manual_seed(0))).to(torch.bfloat16)
    exact_leaf, leaf = logits.float().requires_grad_(), logits.clone().requires_grad_()
    exact, found = exact_leaf.logsumexp(-1), logsumexp(leaf)
    assert torch.equal(found, exact)
    found.sum().backward()
    exact.sum().backward()
    assert leaf.grad is not None and torch.equal(leaf.grad, exact_leaf.grad.to(torch.bfloat16))
