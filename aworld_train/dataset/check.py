"""What must hold for a file before a model is trained on it.

Checked when rows are written and again when a run is about to read them: the schema fits, there is at least
one row, every prompt is a list of messages that ends with the user's, every row has an answer that can be
compared with, and no index comes twice. The first fault is said in one paragraph with its row.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from aworld_train.dataset.schema import check_schema
from aworld_train.errors import DatasetError

ROLES = ("system", "user", "assistant", "tool")
COLUMNS = ("data_source", "agent_name", "prompt", "reward_model", "extra_info")

_BATCH_ROWS = 4096


@dataclass(frozen=True)
class RowCounts:
    """How many rows there are, and of which kinds."""

    rows: int = 0
    data_sources: Mapping[str, int] = field(default_factory=dict)
    agents: Mapping[str, int] = field(default_factory=dict)
    splits: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class FileSummary:
    """A dataset file that training can use.

    Attributes:
        path: The file.
        rows: How many tasks it holds.
        data_sources: Rows per ``data_source``.
        agents: Rows per ``agent_name``; empty where the file does not name agents.
        splits: Rows per ``extra_info.split``; empty where rows do not say.
        schema_version: Version of this package's schema; None for a file made elsewhere.
        bytes: Size of the file.
    """

    path: Path
    rows: int
    data_sources: Mapping[str, int]
    agents: Mapping[str, int]
    splits: Mapping[str, int]
    schema_version: int | None
    bytes: int

    def to_json(self) -> dict[str, Any]:
        """The summary as JSON values."""
        return {**asdict(self), "path": str(self.path)}


def check_file(path: str | Path) -> FileSummary:
    """See that training can use a parquet file, and say what is in it.

    Raises:
        DatasetError: It is missing, unreadable, of another schema, empty, or has a row that cannot be trained
            on.
    """
    path = Path(path)
    with open_parquet(path) as file:
        version = check_schema(file.schema_arrow, str(path))
        columns = [name for name in COLUMNS if name in file.schema_arrow.names]
        counts = check_rows(read_batches(file, path, columns), str(path))
    return FileSummary(
        path, counts.rows, counts.data_sources, counts.agents, counts.splits, version, path.stat().st_size
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
            for row in batch.to_pylist():
                here = row["extra_info"]["index"]
                if index is None or here == index:
                    return dict(row)
                least = here if least is None else min(least, here)
                most = here if most is None else max(most, here)
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


def check_rows(batches: Iterable[pa.RecordBatch], source: str) -> RowCounts:
    """See that every row can be trained on, and count them.

    Args:
        batches: Rows of a schema that `check_schema` accepts.
        source: How messages call them.

    Raises:
        DatasetError: There are no rows, or one has a fault; the message names the row, counted from 0.
    """
    seen: dict[int, int] = {}
    data_sources, agents, splits = Counter[str](), Counter[str](), Counter[str]()
    number = 0
    for batch in batches:
        for row in batch.to_pylist():
            fault = _fault(row) or _index_fault(row, number, seen)
            if fault:
                raise DatasetError(f"{source}: row {number} {fault}.")
            data_sources[row["data_source"]] += 1
            if row.get("agent_name"):
                agents[row["agent_name"]] += 1
            if isinstance(split := row["extra_info"].get("split"), str):
                splits[split] += 1
            number += 1
    if not number:
        raise DatasetError(f"{source} has no rows. Build the dataset from more input, or with another split.")
    return RowCounts(number, dict(data_sources), dict(agents), dict(splits))


def _fault(row: dict[str, Any]) -> str | None:
    if not row["data_source"]:
        return "has no data_source"
    messages = row["prompt"]
    if not messages:
        return "has an empty prompt"
    for message in messages:
        if not message or message["role"] not in ROLES:
            return (
                f"has a message whose role is {message and message['role']!r}, not one of {', '.join(ROLES)}"
            )
        if not (message["content"] or "").strip():
            return f"has an empty {message['role']} message"
    if messages[-1]["role"] != "user":
        return f"has a prompt that ends with a message of the {messages[-1]['role']}, not of the user"
    answer = (row["reward_model"] or {}).get("ground_truth")
    if not answer or not answer.strip():
        return "has no answer (reward_model.ground_truth)"
    if not any(character.isalnum() for character in answer):
        return f"has the answer {answer!r}, which stands for one that is kept hidden"
    return None


def _index_fault(row: dict[str, Any], number: int, seen: dict[int, int]) -> str | None:
    index = (row["extra_info"] or {}).get("index")
    if index is None:
        return "has no extra_info.index"
    if index in seen:
        return f"has the extra_info.index {index} of row {seen[index]}; every row needs its own"
    seen[index] = number
    return None


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0].rstrip(".")
