"""What the small models made here have in common: a tokenizer of their own conversations, and layers that can copy.

A tokenizer is a byte-level BPE of the text that episodes repeat. A model's first two layers hold the circuit by which
language models continue what they have read before (https://arxiv.org/abs/2209.11895), which a model this small does
not find in minutes: heads of the first layer look one and two tokens back, and heads of the second at what came after
the same one or two tokens. All else is random.
"""

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from aworld_train.model.portable import make_portable
from aworld_train.model.tiny import SHIPPED

END_OF_TEXT = "<|endoftext|>"
TURN_START = "<|im_start|>"
TURN_END = "<|im_end|>"
SPECIAL = (END_OF_TEXT, TURN_START, TURN_END)

MARKUP = tuple(
    f"<{slash}{name}>" for name in ("tool_call", "tool_response", "tools", "answer") for slash in ("", "/")
)
"""Single tokens that decoding keeps even when it skips special ones, because parsers and scorers need them."""

CONTEXT = 2048  # context length in tokens that the models declare

HIDDEN, HEADS = 128, 4
ROPE_BASE = 1e7
"""So high that half of a head's dimensions hardly turn with the distance: those by which tokens are compared."""
EMBEDDING_SCALE = 0.06
PREVIOUS_TOKEN_LOGIT = 13.0  # of each of the turning pairs, before softmax
TURNING_PAIRS = 6
MATCH_SCALE = 8.0
COPY_SCALE = 0.5
SLOW_TURN = 0.003  # radians a token
OTHER_SCALE = 0.3  # of what the other heads and the layers between add


def train_tokenizer(
    texts: Sequence[str], words: str, template: str, *, also: Sequence[str] = (), min_frequency: int = 0
) -> Any:
    """A byte-level BPE tokenizer of rendered conversations.

    ``words`` is a pattern of what never merges with its neighbours; ``also`` has words beside those of the texts.
    """
    from tokenizers import AddedToken, Regex, decoders, pre_tokenizers, trainers

    bpe = _empty()
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(words), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    bpe.decoder = decoders.ByteLevel()
    # Training ends when no pair repeats any more, which is far below this size.
    trainer = trainers.BpeTrainer(
        vocab_size=4096,
        min_frequency=min_frequency,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    # Cut at the added tokens, because the trainer would merge across them.
    added_tokens = "|".join(map(re.escape, (*SPECIAL, *MARKUP)))
    bpe.train_from_iterator(
        [*(piece for text in texts for piece in re.split(added_tokens, text)), *also], trainer
    )
    bpe.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    bpe.add_tokens([AddedToken(token, special=False, normalized=False) for token in MARKUP])
    return _wrap(bpe, template)


def render(
    messages: Sequence[Mapping[str, Any]], template: str, tools: Sequence[Mapping[str, Any]] = ()
) -> str:
    """A conversation as text, before there is a tokenizer of its own."""
    text: str = _wrap(_empty(), template).apply_chat_template(
        list(messages), tools=list(tools) or None, tokenize=False
    )
    return text


def read_template() -> str:
    return (SHIPPED / "chat_template.jinja").read_text("utf-8")


def save_model(model: Any, tokenizer: Any, folder: Path) -> None:
    """Write a model's folder, its tokenizer under the class that transformers 4 and 5 know; 5 writes one of its own."""
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    settings = folder / "tokenizer_config.json"
    text = settings.read_text(encoding="utf-8")
    settings.write_text(text.replace('"TokenizersBackend"', '"PreTrainedTokenizerFast"'), encoding="utf-8")
    make_portable(folder, None)


def _empty() -> Any:
    from tokenizers import Tokenizer, models

    return Tokenizer(models.BPE())


def _wrap(bpe: Any, template: str) -> Any:
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        eos_token=TURN_END,
        pad_token=END_OF_TEXT,
        clean_up_tokenization_spaces=False,
        model_max_length=CONTEXT,
        chat_template=template,
    )


def make_model(tokenizer: Any, layers: int, seed: int) -> LlamaForCausalLM:
    # Of Llama's architecture, for transformers replaces the tokenizers of Qwen2's, and Qwen3's normalises its heads.
    config = LlamaConfig(
        attention_bias=True,
        vocab_size=len(tokenizer),
        hidden_size=HIDDEN,
        num_hidden_layers=layers,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        intermediate_size=HIDDEN * 3 // 2,
        tie_word_embeddings=True,
        initializer_range=EMBEDDING_SCALE,
        max_position_embeddings=CONTEXT,
        rope_theta=ROPE_BASE,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        dtype="float32",
    )
    torch.manual_seed(seed)
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        set_copying_heads(model)
    return model


def set_copying_heads(model: LlamaForCausalLM) -> None:
    """The first two layers continue a sequence that was read before.

    The first layer's heads 0 and 1 attend to the token one and two places back, by biases that rotary embeddings turn,
    and write what it is into directions of their own. The second layer's even heads attend to tokens after one that is
    the same as the newest, its odd heads to those two places after one that is the same as the newest but one; all
    write what they find as the next token.
    """
    size = HIDDEN // HEADS
    # Radians a token, of each pair of dimensions.
    turns = ROPE_BASE ** (-torch.arange(size // 2) / (size // 2))
    slow_pairs = [pair for pair in range(size // 2) if turns[pair] < SLOW_TURN]
    slow_dimensions = [*slow_pairs, *(pair + size // 2 for pair in slow_pairs)]
    count = len(slow_dimensions)
    identity, written, copied = _directions(count), _directions(2 * count), _directions(HIDDEN)
    previous_tokens = written[:count], written[count:]
    for layer in model.model.layers:
        layer.self_attn.o_proj.weight *= OTHER_SCALE
        layer.mlp.down_proj.weight *= OTHER_SCALE
    first, second = (layer.self_attn for layer in model.model.layers[:2])
    amplitude = math.sqrt(PREVIOUS_TOKEN_LOGIT * math.sqrt(size))
    for back in (1, 2):
        head = slice((back - 1) * size, back * size)
        for projection in (first.q_proj, first.k_proj, first.v_proj):
            projection.weight[head] = 0
        for pair in range(TURNING_PAIRS):
            real, imaginary = head.start + pair, head.start + pair + size // 2
            first.k_proj.bias[real] = amplitude
            first.q_proj.bias[real] = amplitude * math.cos(back * turns[pair])
            first.q_proj.bias[imaginary] = -amplitude * math.sin(back * turns[pair])
        start = head.start
        first.v_proj.weight[start : start + count] = identity
        first.o_proj.weight[:, head] = 0
        first.o_proj.weight[:, start : start + count] = (
            previous_tokens[back - 1].T * EMBEDDING_SCALE * math.sqrt(HIDDEN / count)
        )
    for number in range(HEADS):
        head = slice(number * size, (number + 1) * size)
        query_space, key_space = (identity, previous_tokens[0]) if number % 2 == 0 else previous_tokens
        for projection, directions in ((second.q_proj, query_space), (second.k_proj, key_space)):
            projection.weight[head] = 0
            projection.weight[[head.start + dimension for dimension in slow_dimensions]] = (
                directions * math.sqrt(MATCH_SCALE)
            )
        second.v_proj.weight[head] = copied[head]
        second.o_proj.weight[:, head] = copied[head].T * COPY_SCALE


def _directions(count: int) -> torch.Tensor:
    """Orthogonal ones, in rows."""
    return torch.linalg.qr(torch.randn(HIDDEN, count))[0].T
