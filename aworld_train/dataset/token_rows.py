"""Files of token rows, which supervised training imitates: ids, and a mask of those that the model is to write.

A row is what a training row of RL is, prompt and response as one sequence. Its ids fit one vocabulary, whose digest is
in the file's metadata.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from aworld_train.dataset.check import FileSummary, open_parquet, read_batches
from aworld_train.errors import DatasetError

_FACTS = b"aworld_train.token_rows"
_COLUMNS = {
    "input_ids": pa.list_(pa.int32()),
    "loss_mask": pa.list_(pa.int8()),
    "task": pa.string(),
    "origin": pa.string(),
    "level": pa.string(),
    "reward": pa.float64(),
}


@dataclass(frozen=True)
class TokenRow:
    """One sequence; ``origin`` is the run and the episode, or the file and the line, that it came from."""

    input_ids: Sequence[int]
    loss_mask: Sequence[int]
    task: str
    origin: str
    level: str = ""
    reward: float | None = None

    @property
    def trained(self) -> int:
        return sum(self.loss_mask)


@dataclass(frozen=True)
class TokenRowsFile:
    rows: int
    tokens: int
    trained: int
    longest: int
    vocabulary: str


def write_token_rows(file: Path, rows: Iterable[TokenRow], vocabulary: str) -> TokenRowsFile:
    """Write a file; ``vocabulary`` is the digest that ``vocabulary_digest`` gives."""
    listed = list(rows)
    facts = TokenRowsFile(
        len(listed),
        sum(len(row.input_ids) for row in listed),
        sum(row.trained for row in listed),
        max((len(row.input_ids) for row in listed), default=0),
        vocabulary,
    )
    schema = pa.schema(_COLUMNS, metadata={_FACTS: json.dumps(asdict(facts)).encode()})
    table = pa.Table.from_pylist(list(map(vars, listed)), schema)
    pq.write_table(table, file, compression="zstd")
    return facts


def check_token_rows(files: Sequence[Path], model: Path | None, max_tokens: int) -> FileSummary:
    """What files of token rows hold, after a check that the model has their vocabulary and takes their longest row."""
    facts = {file: token_rows_facts(file) for file in files}
    for file, fact in facts.items():
        if model and fact.vocabulary != (vocabulary_digest(model) or fact.vocabulary):
            raise DatasetError(
                f"The token ids of {file} are of another vocabulary than that of the model {model}. Make the file "
                "again with this model (`aworld-train dataset rows --model`), or train the model it was made with."
            )
        if fact.longest > max_tokens:
            raise DatasetError(
                f"{file} has a row of {fact.longest} tokens, and the recipe takes {max_tokens} "
                "(dataset.max_prompt_tokens and rollout.max_response_tokens together). Raise one of them, or leave "
                "long rows out with `aworld-train dataset rows --max-tokens`."
            )
    rows, size = sum(fact.rows for fact in facts.values()), sum(file.stat().st_size for file in files)
    return FileSummary(
        files[0], rows, {}, {}, {}, {}, {}, {}, several_answers=0, schema_version=None, bytes=size
    )


def token_rows_facts(file: Path) -> TokenRowsFile:
    with open_parquet(file) as opened:
        facts = (opened.schema_arrow.metadata or {}).get(_FACTS)
    if facts is None:
        raise DatasetError(
            f"{file} has no token rows, which trainer.method=sft trains on. `aworld-train dataset rows` makes "
            "them of a run's episodes or of conversations."
        )
    return TokenRowsFile(**json.loads(facts))


def read_token_rows(files: Sequence[Path]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for path in files:
        with open_parquet(path) as file:
            for batch in read_batches(file, path, ["input_ids", "loss_mask"]):
                rows += batch.to_pylist()
    return rows


def vocabulary_digest(model: Path) -> str:
    """A digest of the tokens of a model by id, whatever else its files say; empty without a ``tokenizer.json``."""
    try:
        content = json.loads((model / "tokenizer.json").read_bytes())
    except (OSError, ValueError):
        return ""
    entries = content.get("model", {}).get("vocab", {})
    pairs = (
        entries.items() if isinstance(entries, dict) else ((entry[0], i) for i, entry in enumerate(entries))
    )
    by_id = {int(token): text for text, token in pairs}
    by_id |= {int(added["id"]): added["content"] for added in content.get("added_tokens", ())}
    return hashlib.sha256(json.dumps(sorted(by_id.items())).encode()).hexdigest()
