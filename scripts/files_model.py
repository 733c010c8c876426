"""Makes the small model that goes up the ladder of `scripts/gaia-mini.sh`: its tokenizer, and weights that can copy.

    python scripts/files_model.py transcripts.jsonl models/files    # conversations of `runs export --format messages`

It has 0.6 million parameters, and knows nothing of tools or documents. Its tokenizer is made of the words of the
transcripts.
"""

import argparse
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from small_models import make_model, read_template, render, save_model, train_tokenizer

LAYERS = 3

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
    return train_tokenizer(texts, WORDS, template, also=3 * (numbers + pairs), min_frequency=3)


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
        read_template(),
        flags=re.DOTALL,
    )
    with arguments.transcripts.open(encoding="utf-8") as lines:
        texts = [render(json.loads(line)["messages"], template) for line in lines]
    tokenizer = make_tokenizer(texts, template)
    model = make_model(tokenizer, LAYERS, arguments.seed)
    save_model(model, tokenizer, arguments.out)
    sys.stdout.write(f"{arguments.out}: {model.num_parameters()} parameters, {len(tokenizer)} tokens\n")


if __name__ == "__main__":
    main()
