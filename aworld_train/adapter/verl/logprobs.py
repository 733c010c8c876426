"""Log-probabilities of tokens from logits, in fp32 and some tokens at a time, in the place of VeRL's own.

Without flash-attn VeRL 0.9.1 computes them one token after the other (``logprobs_from_logits_v2``): half of a step with
a small model in fp32, and in bf16 rounded, which at a log-probability of -5 is wrong by up to 0.016.
"""

import sys
from collections.abc import Callable
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
    return _in_parts(_logprobs, logits.flatten(0, -2), labels.flatten()).view(labels.shape)


def logsumexp(logits: torch.Tensor) -> torch.Tensor:
    """In fp32, over the last dimension of ``[tokens, vocabulary]``."""
    return _in_parts(_logsumexp, logits)


def _in_parts(
    compute: Callable[..., torch.Tensor], logits: torch.Tensor, *more: torch.Tensor
) -> torch.Tensor:
    parts = [
        # On the way back they are computed again: in fp32 the logits are twice what the model's bf16 takes.
        checkpoint(compute, *part, use_reentrant=False)
        if logits.requires_grad and logits.dtype is not torch.float32
        else compute(*part)
        for part in zip(*(each.split(_ROWS) for each in (logits, *more)), strict=True)
    ]
    return torch.cat(parts)


def _logprobs(rows: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    rows = rows.float()
    return rows.gather(-1, labels.unsqueeze(-1)).squeeze(-1) - rows.logsumexp(-1)


def _logsumexp(rows: torch.Tensor) -> torch.Tensor:
    return rows.float().logsumexp(-1)


for _name in _USERS:
    _module: Any = sys.modules.get(_name)
    if _module is not None:
        _module.logprobs_from_logits = logprobs_from_logits
