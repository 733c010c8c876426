"""Packed rows by torch's own flash attention are what separate rows are; its kernel, for GPUs alone, is replaced."""

from typing import Any

import pytest
import torch

from aworld_train.adapter.verl import varlen_attention
from aworld_train.adapter.verl.attention import VARLEN_FAMILIES
from tests.unit.adapter.verl.test_attention import assert_packed_as_separate, tiny
from tests.varlen_kernel import kernel


@pytest.fixture(autouse=True)
def on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(varlen_attention, "varlen_attn", kernel)


@pytest.mark.parametrize("family", VARLEN_FAMILIES)
def test_packed_rows_have_the_probabilities_and_gradients_of_separate_ones(family: str) -> None:
    more = {"sliding_window": 6} if family == "mistral" else {}
    assert_packed_as_separate(tiny(family, attention=varlen_attention.NAME, **more), tiny(family, **more))


def test_several_rows_of_a_batch_are_separate_too() -> None:
    plain, packing = tiny("qwen3"), tiny("qwen3", attention=varlen_attention.NAME)
    rows = torch.randint(0, 64, (3, 8))
    found = packing(input_ids=rows, use_cache=False).logits
    assert torch.allclose(found, plain(input_ids=rows, use_cache=False).logits, atol=1e-5)


def test_padding_is_refused() -> None:
    packing, rows = tiny("qwen3", attention=varlen_attention.NAME), torch.randint(0, 64, (2, 8))
    mask = torch.ones_like(rows)
    assert packing(input_ids=rows, attention_mask=mask, use_cache=False).logits.shape[:2] == (2, 8)
    mask[1, :3] = 0
    with pytest.raises(ValueError, match=r"has no padding\. Set model\.attention=sdpa"):
        packing(input_ids=rows, attention_mask=mask, use_cache=False)


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ({"softcap": 30.0}, "softcap"),
        ({"s_aux": [1.0]}, "s_aux"),
        ({"dropout": 0.1}, "dropout"),
        ({"is_causal": False}, "later tokens"),
        ({"position_ids": None}, "tokens without positions"),
    ],
)
def test_what_it_cannot_compute_is_refused(asked: dict[str, Any], named: str) -> None:
    states = torch.zeros(1, 4, 2, 8)

    def attend(key: torch.Tensor, **more: Any) -> torch.Tensor:
        positions = {"position_ids": torch.arange(4)[None]}
        return varlen_attention.packed_attention(states, key, key, None, 4, **(positions | more))

    assert attend(states, dropout=0.0, softcap=None, is_causal=True).shape == states.shape
    with pytest.raises(ValueError, match=f"has no {named}"):
        attend(states, **asked)
    with pytest.raises(ValueError, match="has no earlier tokens"):
        attend(torch.zeros(1, 9, 2, 8))


def test_it_computes_in_what_flash_attention_would_where_the_states_are_in_fp32() -> None:
    states = torch.randn(1, 4, 2, 8)
    positions = torch.arange(4)[None]
    found = varlen_attention.packed_attention(
        states, states, states, None, 4, position_ids=positions, target_dtype=torch.bfloat16
    )
    assert found.dtype is torch.bfloat16
