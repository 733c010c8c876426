"""Models for tests of the engine: random, seeded, and as small as a Qwen3 can be."""

from typing import Any


def tiny_qwen3(vocabulary: int, **options: Any) -> Any:
    """A Qwen3 of two layers with grouped queries, in evaluation mode; ``options`` go to its configuration."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=vocabulary,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        tie_word_embeddings=True,
        **{"head_dim": 8, **options},
    )
    return Qwen3ForCausalLM(config).eval()
