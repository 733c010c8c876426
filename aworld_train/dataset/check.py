"""The conditions for training a model on a file, checked when rows are written and again before a run reads them.

The first fault is reported in one paragraph with its row. A file is read batch by batch, whatever its size.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from aworld_train.dataset.arrays import open_streamed
from aworld_train.dataset.faults import RowCheck
from aworld_train.dataset.lengths import PromptLengths, prompt_lengths, prompt_tokenizer, summary
from aworld_train.dataset.schema import GROUND_TRUTHS, check_schema
from aworld_train.errors import DatasetError, DatasetNotFound
from aworld_train.recipe.locate import commands_for

COLUMNS = ("data_source", "agent_name", "prompt", "reward_model", "extra_info")

_BATCH_ROWS = 4096


@dataclass(frozen=True)
class FileSummary:
    """A dataset file that training can use, with the rows of each value; empty where rows have none."""

    path: Path
    rows: int
    data_sources: Mapping[str, int]
    agents: Mapping[str, int]
    splits: Mapping[str, int]
    scorers: Mapping[str, int]
    answer_schemas: Mapping[str, int]
    levels: Mapping[str, int]
    several_answers: int
    schema_version: int | None
    bytes: int
    prompt_tokens: PromptLengths | None = None

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "path": str(self.path)}


def check_file(
    path: str | Path,
    model: str | Path | None = None,
    max_prompt_tokens: int | None = None,
    note: Callable[[str], None] = lambda _: None,
) -> FileSummary:
    """Check that training can use a parquet file, and measure its prompts with the tokenizer of ``model``.

    Raises DatasetError if it is missing, unreadable, of another schema, empty, or has a row that cannot be used.
    """
    path = Path(path)
    with open_parquet(path) as file:
        version = check_schema(file.schema_arrow, str(path))
        tokenizer = None if model is None else prompt_tokenizer(Path(model), note)
        lengths = Counter[int]()
        if tokenizer is not None:
            note(f"Counting the tokens of {file.metadata.num_rows:,} prompts.")
        columns = [name for name in COLUMNS if name in file.schema_arrow.names]
        check, counts = RowCheck(str(path)), {name: Counter[str]() for name in _COUNTED}
        several_answers = 0
        for batch in read_batches(file, path, columns):
            check.add(batch)
            for name, counter in counts.items():
                counter.update(value_counts(batch, name))
            several_answers += count_several_answers(batch)
            if tokenizer is not None:
                lengths.update(prompt_lengths(tokenizer, batch.column("prompt").to_pylist()))
    if not check.rows:
        raise DatasetError(f"{path} has no rows. Build the dataset from more input, or with another split.")
    return FileSummary(
        path,
        check.rows,
        **{title: dict(sorted(counts[name].items())) for name, title in _COUNTED.items()},
        several_answers=several_answers,
        schema_version=version,
        bytes=path.stat().st_size,
        prompt_tokens=None if tokenizer is None else summary(lengths, max_prompt_tokens),
    )


def check_files(paths: Sequence[str | Path]) -> FileSummary:
    files = [check_file(path) for path in paths]
    sums: dict[str, Any] = {
        name: sum(getattr(file, name) for file in files) for name in ("rows", "bytes", "several_answers")
    }
    for title in _COUNTED.values():
        counts = sum((Counter(getattr(file, title)) for file in files), Counter[str]())
        sums[title] = dict(sorted(counts.items()))
    return replace(files[0], **sums)


def first_rows(path: str | Path, count: int) -> list[dict[str, Any]]:
    rows = (row for batch in checked_batches(Path(path)) for row in batch.to_pylist())
    return list(islice(rows, count))


def find_row(path: str | Path, index: int | None) -> dict[str, Any]:
    """The row whose ``extra_info.index`` is ``index``, or the first for None, as plain values."""
    ends: list[int] = []
    for batch in checked_batches(Path(path)):
        indices = pc.struct_field(batch.column("extra_info"), "index")
        position = 0 if index is None else pc.index(indices, pa.scalar(index, indices.type)).as_py()
        if position >= 0 and len(batch):
            return dict(batch.slice(position, 1).to_pylist()[0])
        ends += [end for end in pc.min_max(indices).as_py().values() if end is not None]
    if not ends:
        raise DatasetError(f"{path} has no rows.")
    raise DatasetNotFound(f"{path} has no task {index}: its tasks are {min(ends)} to {max(ends)}.")


def checked_batches(path: Path, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
    """The rows of a file that training can read."""
    with open_parquet(path) as file:
        check_schema(file.schema_arrow, str(path))
        yield from read_batches(file, path, columns)


def open_parquet(path: Path) -> pq.ParquetFile:
    try:
        if path.is_dir():
            raise DatasetNotFound(
                f"{path} is a directory. Name one of the parquet files in it, such as train.parquet."
            )
        return open_streamed(path)
    except FileNotFoundError:
        build = commands_for(str(path), "aworld-train dataset") or "`aworld-train dataset build`"
        raise DatasetNotFound(f"No such dataset file: {path}. Make one with {build}.") from None
    except (pa.ArrowException, OSError) as error:
        raise DatasetNotFound(
            f"{path} is not a parquet file that can be read: {_first_line(error)}. "
            "Make one with `aworld-train dataset build`."
        ) from error


def read_batches(
    file: pq.ParquetFile, path: Path, columns: Sequence[str] | None = None
) -> Iterator[pa.RecordBatch]:
    try:
        yield from file.iter_batches(batch_size=_BATCH_ROWS, columns=columns)
    except (pa.ArrowException, OSError) as error:
        raise DatasetError(
            f"{path} cannot be read to its end: {_first_line(error)}. Build it again."
        ) from error


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0].rstrip(".")


# Columns and fields of `extra_info` whose values are counted, each with the field of `FileSummary` for the counts.
_COUNTED = {
    "data_source": "data_sources",
    "agent_name": "agents",
    "split": "splits",
    "scorer": "scorers",
    "answer_schema": "answer_schemas",
    "level": "levels",
}


def value_counts(batch: pa.RecordBatch, name: str) -> dict[str, int]:
    """How many rows have each value of a column or of a field of ``extra_info``."""
    if name in batch.schema.names:
        values = batch.column(name)
    elif batch.column("extra_info").type.get_field_index(name) >= 0:
        values = pc.struct_field(batch.column("extra_info"), name)
    else:
        return {}
    if pa.types.is_nested(values.type):
        return {}
    counts = pc.value_counts(values).to_pylist()
    # In files of other programs, fields of these names can hold numbers.
    return {str(item["values"]): item["counts"] for item in counts if item["values"] not in (None, "")}


def count_several_answers(batch: pa.RecordBatch) -> int:
    info = batch.column("extra_info")
    if info.type.get_field_index(GROUND_TRUTHS) < 0:
        return 0
    lists = pc.struct_field(info, GROUND_TRUTHS)
    if pa.types.is_null(lists.type):
        return 0
    return pc.sum(pc.greater(pc.list_value_length(lists), 1)).as_py() or 0
