"""Log-probabilities of tokens from logits, in fp32 and some tokens at a time, in the place of VeRL's own.

Without flash-attn VeRL 0.9.1 computes them one token after the other (``logprobs_from_logits_v2``): half of a step with
a small model in fp32, and in bf16 rounded, which at a log-probability of -5 is wrong by up to 0.016.
"""

import sys
from typing import Any

import torch
import verl.utils.torch_functional  # noqa: F401
from torch.utils.checkpoint import checkpoint

_ROWS = 512
_USERS = ("verl.utils.torch_functional", "verl.workers.engine.fsdp.transformer_impl")
"""VeRL's modules that have the function under its name; one that is imported later takes the first one's."""


def logprobs_from_logits(
    logits: torch.Tensor, labels: torch.Tensor, inplace_backward: bool = True
) -> torch.Tensor:
    """As VeRL's function: log-probabilities of ``labels`` in fp32, over the last dimension."""
    parts = [
        # On the way back they are computed again: in fp32 the logits are twice what the model's bf16 takes.
        checkpoint(_some, rows, ids, use_reentrant=False)
        if rows.requires_grad and rows.dtype is not torch.float32
        else _some(rows, ids)
        for rows, ids in zip(logits.flatten(0, -2).split(_ROWS), labels.flatten().split(_ROWS), strict=True)
    ]
    return torch.cat(parts).view(labels.shape)


def _some(rows: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    rows = rows.float()
    return rows.gather(-1, labels.unsqueeze(-1)).squeeze(-1) - rows.logsumexp(-1)


for _name in _USERS:
    _module: Any = sys.modules.get(_name)
    if _module is not None:
        _module.logprobs_from_logits = logprobs_from_logits
