"""Invented word problems in the shape of GSM8K's files, as JSON lines, CSV or parquet."""

import csv
import json
import random
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

LIBRARY = (
    "The library of a small town lends every reader at most 4 books for 21 days, and a reader who brings a book "
    "back late pays 15 cents for each day; how much does a reader pay for two books that are a week late?"
)
"""One of them, which tests change in small ways."""
FIELDS = ("id", "question", "answer")
SCHEMA = pa.schema([(name, pa.string()) for name in FIELDS])

_NAMES = ("Natalia", "Weng", "Betty", "Julie", "James", "Albert", "Ken", "Alexis", "Tina", "Toulouse")
_THINGS = ("clips", "apples", "tickets", "pages", "flowers", "pizzas", "marbles", "stamps", "muffins")
_SENTENCES = (
    "{name} sold {a} {thing} to friends in the first week, and then half as many in the week after that.",
    "On {day} {name} buys {a} {thing} at ${b} each and pays with bills that cover a little more than the price.",
    "Of the {a} {thing} that {name} had in the morning, {b} were given to a neighbour who had asked for them.",
    "{name} packs {a} {thing} into every one of {b} boxes, and each of the boxes is carried home on foot.",
    "A friend of {name} brings {b} more {thing} each evening, for as many days as there are in two weeks.",
)
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def problems(count: int, repeated: float = 0.0, seed: int = 0) -> Iterator[tuple[str, str, str]]:
    """Id, question (200 to 500 characters) and answer; a share of the problems are repeats of earlier ones."""
    rng = random.Random(seed)
    recent: list[tuple[str, str]] = []
    for number in range(count):
        if recent and rng.random() < repeated:
            question, answer = rng.choice(recent)
        else:
            question, answer = _question(rng, number), str(rng.randrange(10_000))
            recent = [*recent[-20:], (question, answer)]
        yield f"gsm8k-{seed}-{number:08d}", question, answer


def write_jsonl(path: Path, rows: Iterator[tuple[str, str, str]]) -> None:
    with path.open("w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(dict(zip(FIELDS, row, strict=True))) + "\n")


def write_csv(path: Path, rows: Iterator[tuple[str, str, str]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(FIELDS)
        writer.writerows(rows)


def write_parquet(path: Path, rows: Iterator[tuple[str, str, str]], compression: str = "snappy") -> None:
    with pq.ParquetWriter(path, SCHEMA, compression=compression) as writer:
        while batch := list(islice(rows, 5_000)):
            columns = [pa.array(column) for column in zip(*batch, strict=True)]
            writer.write_batch(pa.record_batch(columns, schema=SCHEMA))


def _question(rng: random.Random, number: int) -> str:
    name, thing = rng.choice(_NAMES), rng.choice(_THINGS)
    sentences = [
        sentence.format(
            name=name, thing=thing, day=rng.choice(_DAYS), a=rng.randrange(2, 999), b=rng.randrange(2, 99)
        )
        for sentence in rng.sample(_SENTENCES, rng.randrange(2, 5))
    ]
    return f"{' '.join(sentences)} How many {thing} are left for {name} in case {number}?"
