"""Attention in a trie of tokens: each token sees those above it, and none of another branch.

A segment's queries are compared with the keys of its own path, some at a time, so that no mask of all pairs of a pass's
tokens is there: the largest has ``_QUERIES`` rows of one path's length. transformers knows the attention by its name
once this module is imported, and hands on the trie that the model is called with.
"""

from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import repeat_kv

from aworld_train.adapter.verl.attention import TRIE
from aworld_train.adapter.verl.token_trie import TokenTrie

_QUERIES = 512


def trie_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    trie: TokenTrie | None = None,
    scaling: float | None = None,
    **more: Any,
) -> tuple[torch.Tensor, None]:
    """Called as transformers calls an attention, with states ``[1, heads, tokens, size]``.

    Raises ValueError where it would compute something else than the model asks for.
    """
    unsupported = [name for name in ("sliding_window", "softcap", "s_aux", "dropout") if more.get(name)]
    if trie is None or attention_mask is not None or unsupported:
        raise ValueError(
            f"Attention {TRIE} has no {', '.join(unsupported) or 'padding, and needs a trie'}. "
            "Set trainer.shared_prefix=false."
        )
    repeats = query.shape[1] // key.shape[1]
    keys, values = (repeat_kv(states, repeats).split(trie.lengths, 2) for states in (key, value))
    attended = []
    for segment, queries in enumerate(query.split(trie.lengths, 2)):
        path = (*trie.ancestors[segment], segment)
        path_keys, path_values = (torch.cat([of[number] for number in path], 2) for of in (keys, values))
        attended += _attend(queries, path_keys, path_values, scaling)
    return torch.cat(attended, 2).transpose(1, 2), None


def _attend(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scaling: float | None
) -> list[torch.Tensor]:
    """The queries are of the last keys."""
    seen = key.shape[2] - query.shape[2]
    if not seen:
        return [scaled_dot_product_attention(query, key, value, is_causal=True, scale=scaling)]
    attended = []
    for some in query.split(_QUERIES, 2):
        count = some.shape[2]
        mask = torch.ones(count, seen + count, dtype=torch.bool, device=query.device).tril(seen)
        seen += count
        attended.append(
            scaled_dot_product_attention(
                some, key[:, :, :seen], value[:, :, :seen], attn_mask=mask, scale=scaling
            )
        )
    return attended


AttentionInterface.register(TRIE, trie_attention)
