"""Torch's own flash attention over rows that are packed one behind the other, in flash-attn's place.

VeRL imports this module before it loads the model (its key ``external_lib``), and transformers then knows the name: its
own function for flash attention, and what VeRL puts around it for GPUs that share sequences, call ``packed_attention``.

``sdpa`` compares each token with every other one of the packed row and hides the rest behind a mask: of 24,576 tokens
with the heads of Qwen3-4B a layer took 120 ms on an H100, forwards and backwards, however many sequences they were.
This took 53 ms for one sequence, 8.6 for eight and 4.6 for twenty-four (torch 2.11).
"""

from typing import Any

import torch
from torch.nn.attention.varlen import varlen_attn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations import flash_attention
from transformers.masking_utils import flash_attention_mask
from verl.models.transformers import monkey_patch

NAME = "torch_varlen"
_CAUSAL = (-1, 0)


def packed_attention(
    query_states: torch.Tensor,
    key_states: torch.Tensor,
    value_states: torch.Tensor,
    attention_mask: torch.Tensor | None,
    query_length: int,
    *,
    position_ids: torch.Tensor | None = None,
    softmax_scale: float | None = None,
    sliding_window: int | None = None,
    target_dtype: torch.dtype | None = None,
    **more: Any,
) -> torch.Tensor:
    """Causal attention within each sequence; a sequence begins where its position is 0.

    Called as ``transformers.modeling_flash_attention_utils._flash_attention_forward`` is: ``query_states`` ``[batch,
    tokens, heads, size]``, keys and values with as many heads or a divisor of them, no ``attention_mask`` because rows
    have no padding, ``position_ids`` ``[batch, tokens]`` or one row for all, and a ``sliding_window`` that counts the
    token itself. Raises ValueError where it would compute something else than the model asks for.
    """
    batch, tokens, heads, size = query_states.shape
    positions = _positions(query_states, key_states, attention_mask, position_ids, more)
    # In torch 2.11 heads may differ without a word, in 2.12 with one; repeated they are the same in both, and as fast.
    repeated = heads // key_states.shape[2]
    packed = [
        states.reshape(batch * tokens, -1, size).to(target_dtype or query_states.dtype)
        for states in (
            query_states,
            key_states.repeat_interleave(repeated, 2),
            value_states.repeat_interleave(repeated, 2),
        )
    ]
    ends, longest = _bounds(positions.expand(batch, tokens))
    window = _CAUSAL if sliding_window is None else (sliding_window - 1, 0)
    result = varlen_attn(*packed, ends, ends, longest, longest, scale=softmax_scale, window_size=window)
    assert isinstance(result, torch.Tensor)  # two with `return_aux` alone
    return result.view(batch, tokens, heads, size)


def _bounds(positions: torch.Tensor) -> tuple[torch.Tensor, int]:
    """Where sequences begin and the last one ends, and the tokens of the longest."""
    starts = (positions.reshape(-1) == 0).nonzero().flatten()
    ends = torch.cat([starts, starts.new_tensor([positions.numel()])]).to(torch.int32)
    return ends, int(ends.diff().max())


def _positions(
    query: torch.Tensor,
    key: torch.Tensor,
    attention_mask: torch.Tensor | None,
    position_ids: torch.Tensor | None,
    more: dict[str, Any],
) -> torch.Tensor:
    """The positions; padding, a cache and scores that are changed are not supported."""
    unsupported = [name for name in ("softcap", "s_aux", "dropout") if more.get(name)]
    if attention_mask is not None:
        unsupported.append("padding")
    if query.shape[1] != key.shape[1]:
        unsupported.append("earlier tokens")
    if more.get("is_causal") is False:
        unsupported.append("later tokens")
    if position_ids is None:
        unsupported.append("tokens without positions")
    if unsupported or position_ids is None:
        raise ValueError(f"Attention {NAME} has no {', '.join(unsupported)}. Set model.attention=sdpa.")
    return position_ids


for _module in (flash_attention, monkey_patch):
    _module._flash_attention_forward = packed_attention
AttentionInterface.register(NAME, flash_attention.flash_attention_forward)
AttentionMaskInterface.register(NAME, flash_attention_mask)
