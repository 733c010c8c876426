"""Attention on GPUs is what is installed, and never one that computes something else."""

from importlib.machinery import ModuleSpec
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from aworld_train import recipe as recipes
from aworld_train.adapter.verl import attention
from aworld_train.adapter.verl.attention import FLASH, TORCH, attention_faults, attention_of

_SHARED = ["cluster.gpus_per_node=2", "trainer.sequence_parallel=2"]
FAMILIES = ("qwen2", "qwen3", "llama", "mistral")


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The packages that are taken for installed."""
    packages: set[str] = set()
    monkeypatch.setattr(
        attention, "find_spec", lambda name: ModuleSpec(name, None) if name in packages else None
    )
    return packages


def faults(*overrides: str) -> list[str]:
    return [text for _, text in attention_faults(recipes.load("base/gpu-1", overrides))]


def test_flash_attention_is_taken_where_it_is_installed_and_torch_s_where_it_is_not(
    installed: set[str],
) -> None:
    assert attention_of(recipes.load("base/gpu-1")) == TORCH
    installed.add("flash_attn")
    assert attention_of(recipes.load("base/gpu-1")) == FLASH
    assert attention_of(recipes.load("base/gpu-1", ["model.attention=sdpa"])) == TORCH
    assert attention_of(recipes.load("quickstart")) == TORCH, "it needs a GPU"


def test_gpus_share_sequences_with_flash_attention_alone(installed: set[str]) -> None:
    assert attention_of(recipes.load("base/gpu-1", _SHARED)) == FLASH
    assert not faults(*_SHARED)
    for other in ("sdpa", "eager"):
        (refusal,) = faults(*_SHARED, f"model.attention={other}")
        assert f"model.attention is {other}" in refusal and "trainer.sequence_parallel to 1" in refusal
        assert not faults(f"model.attention={other}")


@pytest.mark.parametrize(
    ("named", "package"),
    [
        ("flash_attention_2", "flash_attn"),
        ("flash_attention_3", "flash_attn_interface"),
        ("kernels-community/flash-attn2", "kernels"),
    ],
)
def test_attention_that_is_not_installed_is_refused_on_a_machine_with_gpus(
    installed: set[str], named: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not faults(f"model.attention={named}"), "the recipe is for another machine"
    monkeypatch.setattr(attention, "gpus_of_machine", lambda device: 1)
    (refusal,) = faults(f"model.attention={named}")
    assert f"{named}, which needs the Python package {package}," in refusal
    assert not faults("model.attention=sdpa")
    installed.add(package)
    assert not faults(f"model.attention={named}")
    recipe = recipes.load("quickstart", [f"model.attention={named}"])
    ((key, text),) = attention_faults(recipe)
    assert key == ("model", "attention") and "on GPUs alone" in text


@pytest.mark.parametrize("family", FAMILIES)
def test_packed_rows_have_the_probabilities_of_separate_ones(family: str) -> None:
    """As VeRL packs them for a GPU: one row, whose positions begin anew with each sequence."""
    sizes: dict[str, Any] = {
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "vocab_size": 64,
    }
    torch.manual_seed(0)
    config = AutoConfig.for_model(family, **sizes)
    model = AutoModelForCausalLM.from_config(config, attn_implementation=TORCH).float()
    rows = [torch.randint(0, 64, (1, length)) for length in (5, 17, 1, 9)]
    packed = torch.cat(rows, dim=1)
    positions = torch.cat([torch.arange(row.shape[1])[None] for row in rows], dim=1)

    def gradients(losses: list[torch.Tensor]) -> torch.Tensor:
        model.zero_grad()
        torch.stack(losses).sum().backward()
        return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])

    together = model(input_ids=packed, position_ids=positions, attention_mask=None, use_cache=False).logits
    alone = torch.cat([model(input_ids=row, use_cache=False).logits for row in rows], dim=1)
    assert torch.allclose(together, alone, atol=1e-5)
    assert torch.allclose(gradients([together.square().sum()]), gradients([alone.square().sum()]), atol=1e-4)
