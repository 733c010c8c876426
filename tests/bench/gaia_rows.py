"""Invented tasks in the shape of GAIA's metadata.jsonl: ids, levels, answers, attachments, annotators' notes."""

import json
import random
from pathlib import Path

_TEXT = """
the of in a table report year river museum which author second page minutes according attached spreadsheet city
population before after how many paper title figure first letters album station between distance kilometres nearest
whole number without commas species bird video shown archive edition index museum's
"""
_WORDS = _TEXT.split()


def write_gaia_rows(path: Path, count: int, seed: int = 0) -> None:
    """Write ``count`` lines; questions have 150 to 600 characters and all differ."""
    rng = random.Random(seed)
    with path.open("w", encoding="utf-8") as file:
        for number in range(count):
            file.write(json.dumps(_row(rng, number), ensure_ascii=False) + "\n")


def _row(rng: random.Random, number: int) -> dict[str, object]:
    task_id = f"{rng.getrandbits(32):08x}-{number:08x}"
    attachment = f"{task_id}.{rng.choice(('xlsx', 'pdf', 'png', 'mp3'))}" if rng.random() < 0.25 else ""
    return {
        "task_id": task_id,
        "Question": _text(rng, rng.randint(150, 600)) + f" Give case {number}.",
        "Level": rng.choice((1, 1, 2, 2, 2, 3)),
        "Final answer": rng.choice((str(rng.randint(0, 9999)), _text(rng, 20), f"{rng.random():.3f}")),
        "file_name": attachment,
        "Annotator Metadata": {
            "Steps": _text(rng, rng.randint(100, 700)),
            "Number of steps": str(rng.randint(1, 20)),
            "How long did this take?": f"{rng.randint(2, 60)} minutes",
            "Tools": "1. Web browser\n2. Calculator",
            "Number of tools": "2",
        },
    }


def _text(rng: random.Random, length: int) -> str:
    return " ".join(rng.choices(_WORDS, k=length // 5))[:length].strip().capitalize()
