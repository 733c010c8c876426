"""Packed rows by torch's own flash attention are what separate rows are; its kernel, for GPUs alone, is replaced."""

import inspect
from typing import Any

import pytest
import torch
from torch.nn.attention.varlen import varlen_attn

from aworld_train.adapter.verl import varlen_attention
from aworld_train.adapter.verl.attention import VARLEN_FAMILIES
from tests.unit.adapter.verl.test_attention import gradients, tiny


def kernel(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    ends_q: torch.Tensor,
    ends_k: torch.Tensor,
    longest_q: int,
    longest_k: int,
    **more: Any,
) -> torch.Tensor:
    """What the kernel computes, sequence by sequence on the CPU; its own figures are in the module's documentation."""
    inspect.signature(varlen_attn).bind(query, key, value, ends_q, ends_k, longest_q, longest_k, **more)
    assert torch.equal(ends_q, ends_k) and ends_q.dtype is torch.int32
    assert longest_q == longest_k == int(ends_q.diff().max())
    assert query.dtype is key.dtype is value.dtype and query.shape == key.shape == value.shape
    before, after = more["window_size"]
    assert after == 0
    parts = []
    for start, end in zip(ends_q[:-1].tolist(), ends_q[1:].tolist(), strict=True):
        distance = torch.arange(end - start)[:, None] - torch.arange(end - start)
        seen = (distance >= 0) & ((distance <= before) if before >= 0 else True)
        states = [each[start:end].transpose(0, 1) for each in (query, key, value)]
        parts.append(
            torch.nn.functional.scaled_dot_product_attention(
                *states, attn_mask=seen, scale=more["scale"]
            ).transpose(0, 1)
        )
    return torch.cat(parts)


@pytest.fixture(autouse=True)
def on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(varlen_attention, "varlen_attn", kernel)
    monkeypatch.setattr(torch, "get_autocast_dtype", lambda device: torch.float32)


@pytest.mark.parametrize("family", VARLEN_FAMILIES)
def test_packed_rows_have_the_probabilities_and_gradients_of_separate_ones(family: str) -> None:
    more = {"sliding_window": 6} if family == "mistral" else {}
    plain, packing = tiny(family, **more), tiny(family, attention=varlen_attention.NAME, **more)
    rows = [torch.randint(0, 64, (1, length)) for length in (5, 17, 1, 9)]
    packed = torch.cat(rows, dim=1)
    positions = torch.cat([torch.arange(row.shape[1])[None] for row in rows], dim=1)

    def together() -> torch.Tensor:
        return packing(
            input_ids=packed, position_ids=positions, attention_mask=None, use_cache=False
        ).logits.log_softmax(-1)

    def alone() -> torch.Tensor:
        found = [plain(input_ids=row, use_cache=False).logits for row in rows]
        return torch.cat(found, dim=1).log_softmax(-1)

    assert torch.allclose(together(), alone(), atol=1e-5)
    assert torch.allclose(gradients(packing, together()), gradients(plain, alone()), atol=1e-3)


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
    ],
)
def test_what_changes_the_scores_is_refused(asked: dict[str, Any], named: str) -> None:
    states, positions = torch.zeros(1, 2, 4, 8), torch.arange(4)[None]

    def attend(key: torch.Tensor, **more: Any) -> torch.Tensor:
        return varlen_attention.varlen_attention(
            torch.nn.Module(), states, key, key, None, position_ids=positions, **more
        )[0]

    assert attend(states, dropout=0.0, softcap=None).shape == (1, 4, 2, 8)
    with pytest.raises(ValueError, match=f"has no {named}"):
        attend(states, **asked)
    with pytest.raises(ValueError, match="has no earlier tokens"):
        attend(torch.zeros(1, 2, 9, 8))
