"""Torch's own flash attention over rows that are packed one behind the other, for transformers.

VeRL imports this module before it loads the model (its key ``external_lib``), and transformers then knows the name.
``sdpa`` compares each token with every other one of the packed row and hides the rest behind a mask: of 24,576 tokens
with the heads of Qwen3-4B a layer took 120 ms on an H100, forwards and backwards, however many sequences they were.
This took 53 ms for one sequence, 8.6 for eight and 4.6 for twenty-four (torch 2.11).
"""

from typing import Any

import torch
from torch.nn.attention.varlen import varlen_attn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import flash_attention_mask

NAME = "torch_varlen"
_CAUSAL = (-1, 0)


def varlen_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    position_ids: torch.Tensor,
    scaling: float | None = None,
    sliding_window: int | None = None,
    **more: Any,
) -> tuple[torch.Tensor, None]:
    """Causal attention within each sequence; a sequence begins where its position is 0.

    Args:
        module: The model's layer of attention.
        query: ``[batch, heads, tokens, size]``.
        key: As ``query``, with as many heads or a divisor of them.
        value: As ``key``.
        attention_mask: None: rows have no padding.
        position_ids: ``[batch, tokens]``, or one row for all.
        scaling: Of the products; by default one by the square root of the size.
        sliding_window: How many tokens a token sees, itself among them; by default all before it.
        more: What other kinds of attention want; ``softcap`` and ``s_aux`` change the result, so they must be None.

    Returns:
        ``[batch, tokens, heads, size]``, and no weights.

    Raises:
        ValueError: It would compute something else than the model asks for.
    """
    _refuse_others(query, key, attention_mask, more)
    batch, heads, tokens, size = query.shape
    kind = query.dtype
    if kind is torch.float32:
        kind = torch.get_autocast_dtype(query.device.type)
    # In torch 2.11 heads may differ without a word, in 2.12 with one; repeated they are the same in both, and as fast.
    repeated = heads // key.shape[1]
    packed = [
        states.transpose(1, 2).reshape(batch * tokens, -1, size).to(kind)
        for states in (query, key.repeat_interleave(repeated, 1), value.repeat_interleave(repeated, 1))
    ]
    starts = (position_ids.expand(batch, tokens).reshape(-1) == 0).nonzero().flatten()
    ends = torch.cat([starts, starts.new_tensor([batch * tokens])]).to(torch.int32)
    longest = int(ends.diff().max())
    window = _CAUSAL if sliding_window is None else (sliding_window - 1, 0)
    result = varlen_attn(*packed, ends, ends, longest, longest, scale=scaling, window_size=window)
    assert isinstance(result, torch.Tensor)  # two with `return_aux` alone
    return result.view(batch, tokens, heads, size).to(query.dtype), None


def _refuse_others(
    query: torch.Tensor, key: torch.Tensor, attention_mask: torch.Tensor | None, more: dict[str, Any]
) -> None:
    """What it cannot compute: padding, a cache of earlier tokens, scores that are changed, dropout."""
    asked = [name for name in ("softcap", "s_aux", "dropout") if more.get(name)]
    if attention_mask is not None:
        asked.append("padding")
    if query.shape[2] != key.shape[2]:
        asked.append("earlier tokens")
    if more.get("is_causal") is False:
        asked.append("later tokens")
    if asked:
        raise ValueError(f"Attention {NAME} has no {', '.join(asked)}. Set model.attention=sdpa.")


AttentionInterface.register(NAME, varlen_attention)
AttentionMaskInterface.register(NAME, flash_attention_mask)
