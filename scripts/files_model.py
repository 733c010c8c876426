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
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from aworld_train.model import tokenizer as tiny
from aworld_train.model.portable import make_portable

HIDDEN, HEADS, LAYERS, CONTEXT = 128, 4, 3, 1024
ROPE_BASE = 1e7
"""So high that half of a head's dimensions hardly turn with the distance: those by which tokens are compared."""
EMBEDDING_SCALE = 0.06
PREVIOUS_TOKEN_LOGIT = 13.0  # of each of the turning pairs, before softmax
TURNING_PAIRS = 6
MATCH_SCALE = 8.0
COPY_SCALE = 0.5
OTHER_SCALE = 0.3  # of what the other heads and the layers between add

_HEX_PAIR = r"(?<=/|[0-9a-f]{2}|\n)[0-9a-f]{2}(?=[0-9a-f]*\.[a-z]{3})"
_LABEL = r": [a-z]+"
WORDS = rf"{_LABEL}|{_HEX_PAIR}| ?[A-Za-z]+| ?\d{{1,2}}|\n|[^A-Za-z\d\n]+?(?= ?[A-Za-z\d\n]|$)"
"""Names of files in pairs of digits, the label of a sentence with its colon, else words with the space before them."""


def make_tokenizer(texts: list[str], template: str) -> PreTrainedTokenizerFast:
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(WORDS), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    bpe.decoder = decoders.ByteLevel()
    # Each number and each pair is one token, whichever of them the transcripts have.
    numbers = [
        f"{space}{number:0{digits}}"
        for space in ("", " ")
        for digits in (1, 2)
        for number in range(10**digits)
    ]
    pairs = [f"/{pair:02x}00000000.csv" for pair in range(256)]
    trainer = trainers.BpeTrainer(
        vocab_size=4096,
        min_frequency=3,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    pieces = [
        piece
        for text in texts
        for piece in re.split("|".join(map(re.escape, (*tiny.SPECIAL, *tiny.MARKUP))), text)
    ]
    bpe.train_from_iterator([*pieces, *3 * numbers, *3 * pairs], trainer)
    bpe.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in tiny.SPECIAL])
    bpe.add_tokens([AddedToken(token, special=False, normalized=False) for token in tiny.MARKUP])
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        eos_token=tiny.TURN_END,
        pad_token=tiny.END_OF_TEXT,
        clean_up_tokenization_spaces=False,
        model_max_length=CONTEXT,
        chat_template=template,
    )


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
        max_position_embeddings=CONTEXT,
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

    The first layer's heads 0 and 1 attend to the token 1 and 2 places back, by biases that rotary embeddings turn, and
    write what it is into directions of their own. The second layer's even heads attend to tokens after one that is the
    same as the newest, its odd heads to those two places after one that is the same as the newest but one; all write
    what they find as the next token.
    """
    size = HIDDEN // HEADS
    turns = ROPE_BASE ** (
        -torch.arange(size // 2) / (size // 2)
    )  # radians a token, of each pair of dimensions
    still = [pair for pair in range(size // 2) if turns[pair] < 3 / CONTEXT]
    compared = [*still, *(pair + size // 2 for pair in still)]
    count = len(compared)
    identity, written, copied = _directions(count), _directions(2 * count), _directions(HIDDEN)
    places = written[:count], written[count:]
    for layer in model.model.layers:
        layer.self_attn.o_proj.weight *= OTHER_SCALE
        layer.mlp.down_proj.weight *= OTHER_SCALE
    before, after = (layer.self_attn for layer in model.model.layers[:2])
    pull = math.sqrt(PREVIOUS_TOKEN_LOGIT * math.sqrt(size))
    for back in (1, 2):
        head = slice((back - 1) * size, back * size)
        for projection in (before.q_proj, before.k_proj, before.v_proj):
            projection.weight[head] = 0
        for pair in range(TURNING_PAIRS):
            first, second = head.start + pair, head.start + pair + size // 2
            before.k_proj.bias[first] = pull
            before.q_proj.bias[first] = pull * math.cos(back * turns[pair])
            before.q_proj.bias[second] = -pull * math.sin(back * turns[pair])
        start = head.start
        before.v_proj.weight[start : start + count] = identity
        before.o_proj.weight[:, head] = 0
        before.o_proj.weight[:, start : start + count] = (
            places[back - 1].T * EMBEDDING_SCALE * math.sqrt(HIDDEN / count)
        )
    for number in range(HEADS):
        head = slice(number * size, (number + 1) * size)
        asked, known = (identity, places[0]) if number % 2 == 0 else places
        for projection, directions in ((after.q_proj, asked), (after.k_proj, known)):
            projection.weight[head] = 0
            projection.weight[[head.start + place for place in compared]] = directions * math.sqrt(
                MATCH_SCALE
            )
        after.v_proj.weight[head] = copied[head]
        after.o_proj.weight[:, head] = copied[head].T * COPY_SCALE


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
    template = files("aworld_train.model").joinpath("chat_template.jinja").read_text("utf-8")
    # The schemas of tools, which a model this small learns nothing from, are left out of its prompts.
    template = re.sub(
        r"\{%- if tools -%\}.*?\{%- elif has_system", "{%- if has_system", template, flags=re.DOTALL
    )
    renderer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()), chat_template=template)
    with arguments.transcripts.open(encoding="utf-8") as lines:
        texts = [renderer.apply_chat_template(json.loads(line)["messages"], tokenize=False) for line in lines]
    tokenizer = make_tokenizer(texts, template)
    model = make_model(tokenizer, arguments.seed)
    model.save_pretrained(arguments.out)
    tiny.save(tokenizer, arguments.out)
    make_portable(arguments.out, None)
    sys.stdout.write(f"{arguments.out}: {model.num_parameters()} parameters, {len(tokenizer)} tokens\n")


if __name__ == "__main__":
    main()
