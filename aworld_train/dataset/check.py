"""What must hold for a file before a model is trained on it.

Checked when rows are written and again when a run is about to read them: the schema fits, there is at least
one row, every prompt is a list of messages that ends with the user's, every row has an answer that can be
compared with, its scorer and answer schema are known, and no index comes twice. The first fault is said in one
paragraph with its row. A file is read batch by batch, whatever its size.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from aworld_train.dataset.faults import RowCheck
from aworld_train.dataset.lengths import PromptLengths, PromptTokens
from aworld_train.dataset.schema import check_schema
from aworld_train.errors import DatasetError

COLUMNS = ("data_source", "agent_name", "prompt", "reward_model", "extra_info")

_BATCH_ROWS = 4096


@dataclass(frozen=True)
class FileSummary:
    """A dataset file that training can use.

    Attributes:
        path: The file.
        rows: How many tasks it holds.
        data_sources: Rows per ``data_source``.
        agents: Rows per ``agent_name``; empty where the file does not name agents.
        splits: Rows per ``extra_info.split``; empty where rows do not say.
        scorers: Rows per ``extra_info.scorer``; empty where rows do not say.
        answer_schemas: Rows per ``extra_info.answer_schema``; empty where rows do not say.
        levels: Rows per ``extra_info.level``; empty where rows do not say.
        schema_version: Version of this package's schema; None for a file made elsewhere.
        bytes: Size of the file.
        prompt_tokens: How long the prompts are, where a model was given to count with.
    """

    path: Path
    rows: int
    data_sources: Mapping[str, int]
    agents: Mapping[str, int]
    splits: Mapping[str, int]
    scorers: Mapping[str, int]
    answer_schemas: Mapping[str, int]
    levels: Mapping[str, int]
    schema_version: int | None
    bytes: int
    prompt_tokens: PromptLengths | None = None

    def to_json(self) -> dict[str, Any]:
        """The summary as JSON values."""
        return {**asdict(self), "path": str(self.path)}


def check_file(
    path: str | Path, model: str | Path | None = None, max_prompt_tokens: int | None = None
) -> FileSummary:
    """See that training can use a parquet file, and say what is in it.

    Args:
        path: The file.
        model: Directory of a model whose tokenizer and chat template the prompts are measured with.
        max_prompt_tokens: Longer prompts are counted.

    Raises:
        DatasetError: It is missing, unreadable, of another schema, empty, or has a row that cannot be trained
            on.
        ModelError: The model has no tokenizer with a chat template.
    """
    path = Path(path)
    tokens = None if model is None else PromptTokens(Path(model), max_prompt_tokens)
    with open_parquet(path) as file:
        version = check_schema(file.schema_arrow, str(path))
        columns = [name for name in COLUMNS if name in file.schema_arrow.names]
        check, counts = RowCheck(str(path)), {name: Counter[str]() for name in _COUNTED}
        for batch in read_batches(file, path, columns):
            check.add(batch)
            for name, counter in counts.items():
                counter.update(_counted(batch, name))
            if tokens is not None:
                tokens.add(batch.column("prompt"))
    if not check.rows:
        raise DatasetError(f"{path} has no rows. Build the dataset from more input, or with another split.")
    return FileSummary(
        path,
        check.rows,
        **{title: dict(sorted(counts[name].items())) for name, title in _COUNTED.items()},
        schema_version=version,
        bytes=path.stat().st_size,
        prompt_tokens=None if tokens is None else tokens.summary(),
    )


def first_rows(path: str | Path, count: int) -> list[dict[str, Any]]:
    """The first rows of a file that training can read, as plain values.

    Raises:
        DatasetError: It is missing, unreadable, or of another schema.
    """
    path = Path(path)
    with open_parquet(path) as file:
        check_schema(file.schema_arrow, str(path))
        rows = (row for batch in read_batches(file, path) for row in batch.to_pylist())
        return list(islice(rows, count))


def find_task(path: str | Path, index: int | None) -> dict[str, Any]:
    """The row whose ``extra_info.index`` is ``index``, or the first for None, as plain values.

    Raises:
        DatasetError: There is none, or the file cannot be read.
    """
    path = Path(path)
    least: int | None = None
    most: int | None = None
    with open_parquet(path) as file:
        check_schema(file.schema_arrow, str(path))
        for batch in read_batches(file, path):
            indices = pc.struct_field(batch.column("extra_info"), "index")
            here = 0 if index is None else pc.index(indices, pa.scalar(index, indices.type)).as_py()
            if here >= 0 and len(batch):
                return dict(batch.slice(here, 1).to_pylist()[0])
            ends = pc.min_max(indices).as_py()
            if ends["min"] is not None:
                least = ends["min"] if least is None else min(least, ends["min"])
                most = ends["max"] if most is None else max(most, ends["max"])
    if least is None:
        raise DatasetError(f"{path} has no rows.")
    raise DatasetError(f"{path} has no task {index}: its tasks are {least} to {most}.")


def open_parquet(path: Path) -> pq.ParquetFile:
    """The file opened for reading.

    Raises:
        DatasetError: It is not there, or is not parquet.
    """
    try:
        if path.is_dir():
            raise DatasetError(
                f"{path} is a directory. Name one of the parquet files in it, such as train.parquet."
            )
        return pq.ParquetFile(path)
    except FileNotFoundError:
        raise DatasetError(
            f"There is no dataset file {path}. Make one with `aworld-train dataset build`."
        ) from None
    except (pa.ArrowException, OSError) as error:
        raise DatasetError(
            f"{path} is not a parquet file that can be read: {_first_line(error)}. "
            "Make one with `aworld-train dataset build`."
        ) from error


def read_batches(
    file: pq.ParquetFile, path: Path, columns: Sequence[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of an opened file, batch by batch.

    Raises:
        DatasetError: The file is damaged.
    """
    try:
        yield from file.iter_batches(batch_size=_BATCH_ROWS, columns=columns)
    except (pa.ArrowException, OSError) as error:
        raise DatasetError(
            f"{path} cannot be read to its end: {_first_line(error)}. Build it again."
        ) from error


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0].rstrip(".")


# Columns whose values are counted, `extra_info`'s fields among them, and what `FileSummary` calls the counts.
_COUNTED = {
    "data_source": "data_sources",
    "agent_name": "agents",
    "split": "splits",
    "scorer": "scorers",
    "answer_schema": "answer_schemas",
    "level": "levels",
}


def _counted(batch: pa.RecordBatch, name: str) -> dict[str, int]:
    if name in batch.schema.names:
        values = batch.column(name)
    elif batch.column("extra_info").type.get_field_index(name) >= 0:
        values = pc.struct_field(batch.column("extra_info"), name)
    else:
        return {}
    if pa.types.is_nested(values.type):
        return {}
    found = pc.value_counts(values).to_pylist()
    # Other makers have fields of these names that hold numbers.
    return {str(item["values"]): item["counts"] for item in found if item["values"] not in (None, "")}
