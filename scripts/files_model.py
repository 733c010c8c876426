"""Makes the small model that goes up the ladder of `scripts/gaia-mini.sh`: its tokenizer, and weights that can copy.

    python scripts/files_model.py transcripts.jsonl models/files    # conversations of `runs export --format messages`

It has 0.6 million parameters, and knows nothing of tools or documents. Its tokenizer is made of the words of the
transcripts. Its first layers hold the circuit by which language models continue what they have read before
(https://arxiv.org/abs/2209.11895), which a model this small does not find in minutes: heads of the first layer look one
and two tokens back, and heads of the second at what came after the same one or two tokens. All else is random.
"""

import argparse
import json
import math
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from aworld_train.model import tokenizer as tiny
from aworld_train.model.portable import make_portable

HIDDEN, HEADS, LAYERS = 128, 4, 3
ROPE_BASE = 1e7
"""So high that half of a head's dimensions hardly turn with the distance: those by which tokens are slow_dimensions."""
EMBEDDING_SCALE = 0.06
PREVIOUS_TOKEN_LOGIT = 13.0  # of each of the turning pairs, before softmax
TURNING_PAIRS = 6
MATCH_SCALE = 8.0
COPY_SCALE = 0.5
SLOW_TURN = 0.003  # radians a token
OTHER_SCALE = 0.3  # of what the other heads and the layers between add

_HEX_PAIR = r"(?<=/|[0-9a-f]{2}|\n)[0-9a-f]{2}(?=[0-9a-f]*\.[a-z]{3})"
_LABEL = r": [a-z]+"
WORDS = rf"{_LABEL}|{_HEX_PAIR}| ?[A-Za-z]+| ?\d{{1,2}}|\n|[^A-Za-z\d\n]+?(?= ?[A-Za-z\d\n]|$)"
"""Names of files in pairs of digits, the label of a sentence with its colon, else words with the space before them."""


def make_tokenizer(texts: Sequence[str], template: str) -> Any:
    # Each number and each pair is one token, whichever of them the transcripts have.
    numbers = [
        f"{space}{number:0{digits}}"
        for space in ("", " ")
        for digits in (1, 2)
        for number in range(10**digits)
    ]
    pairs = [f"/{pair:02x}00000000.csv" for pair in range(256)]
    return tiny.train(texts, WORDS, template, also=3 * (numbers + pairs), min_frequency=3)


def make_model(tokenizer: Any, seed: int) -> Qwen2ForCausalLM:
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        intermediate_size=HIDDEN * 3 // 2,
        tie_word_embeddings=True,
        initializer_range=EMBEDDING_SCALE,
        max_position_embeddings=tiny.CONTEXT,
        rope_theta=ROPE_BASE,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        dtype="float32",
    )
    torch.manual_seed(seed)
    model = Qwen2ForCausalLM(config)
    with torch.no_grad():
        set_copying_heads(model)
    return model


def set_copying_heads(model: Qwen2ForCausalLM) -> None:
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


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("transcripts", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args(argv)
    # The schemas of tools, which a model this small learns nothing from, are left out of its prompts.
    template = re.sub(
        r"\{%- if tools -%\}.*?\{%- elif has_system",
        "{%- if has_system",
        tiny.read_template(),
        flags=re.DOTALL,
    )
    with arguments.transcripts.open(encoding="utf-8") as lines:
        texts = [tiny.render(json.loads(line)["messages"], template) for line in lines]
    tokenizer = make_tokenizer(texts, template)
    model = make_model(tokenizer, arguments.seed)
    model.save_pretrained(arguments.out)
    tiny.save(tokenizer, arguments.out)
    make_portable(arguments.out, None)
    sys.stdout.write(f"{arguments.out}: {model.num_parameters()} parameters, {len(tokenizer)} tokens\n")


if __name__ == "__main__":
    main()
