"""What torch's flash attention over packed rows computes, on a CPU, where its kernel does not run."""

import inspect
from typing import Any

import torch
from torch.nn.attention.varlen import varlen_attn


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
