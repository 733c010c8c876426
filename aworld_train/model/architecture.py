"""The tiny model's shape: Qwen3's, small enough to learn to copy within a minute on one core."""

from typing import Any

from aworld_train.model.tokenizer import CONTEXT


def build(tokenizer: Any, seed: int) -> Any:
    """A `Qwen3ForCausalLM` in fp32 with random weights; the same ones for the same seed."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        intermediate_size=192,
        tie_word_embeddings=True,
        initializer_range=0.06,  # with the usual 0.02 some seeds learn to copy only after twice as many steps
        max_position_embeddings=CONTEXT,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        dtype="float32",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Qwen3ForCausalLM(config)
