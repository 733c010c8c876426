"""Models for tests: random, seeded, and as small as a Qwen3 can be; and the tokenizer of the one that is shipped."""

from typing import Any

from aworld_train.model.tiny import SHIPPED


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


def shipped_tokenizer() -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(SHIPPED, local_files_only=True)


def tiny_qwen3_of(tokenizer: Any) -> Any:
    """One that ends its turns as the tokenizer does."""
    ids = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    return tiny_qwen3(len(tokenizer), max_position_embeddings=65_536, **ids)
