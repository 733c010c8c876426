"""The tasks of a program as a checked Parquet file: rows as they are, anything else built as `dataset build` does."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from aworld_train.atomic import write_text
from aworld_train.dataset import BuildReport, build
from aworld_train.errors import DatasetError

_SOURCES = {".csv": "csv", ".tsv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl"}
_ROW_COLUMNS = {"prompt", "reward_model"}
_FORMS = (
    "the path of a Parquet, CSV or JSONL file, a list of rows or of {query, answer}, a pyarrow.Table, a "
    "datasets.Dataset, another object with to_parquet, or a source of tasks as 'file.py:function'"
)
Listed = Callable[[str], None]


def dataset_argument(data: Any, folder: Path, name: str, split: str, listed: Listed) -> Path:
    """The Parquet file of a split, in ``folder`` unless it exists; ``listed`` takes a line about dropped records."""
    target = folder / f"{name}-{split}"
    if isinstance(data, str | Path):
        path = Path(data).expanduser()
        source = _SOURCES.get(path.suffix.lower())
        if source:
            return _built(source, [path], target, split, listed)
        if ":" in str(data) and not path.exists():
            return _built(str(data), [], target, split, listed)
        return path if _has_rows(path) else _built("parquet", [path], target, split, listed)
    folder.mkdir(parents=True, exist_ok=True)
    if isinstance(data, Sequence) and not _is_row(data):
        lines = target.with_suffix(".jsonl")
        write_text(lines, "".join(json.dumps(_record(item), ensure_ascii=False) + "\n" for item in data))
        return _built("jsonl", [lines], target, split, listed)
    rows = target.with_suffix(".parquet")
    _write_parquet(data, rows)
    return rows if _has_rows(rows) else _built("parquet", [rows], target, split, listed)


def _built(source: str, files: Sequence[Path], target: Path, split: str, listed: Listed) -> Path:
    report: BuildReport = build(source, target, files=files, splits={split: 1.0})
    if report.dropped:
        reasons = ", ".join(f"{count} {reason}" for reason, count in report.dropped.items())
        listed(
            f"{split}: {sum(report.dropped.values())} of {report.seen} records were left out ({reasons}); "
            f"{target / 'dropped.jsonl'} lists them."
        )
    return target / f"{split}.parquet"


def _has_rows(path: Path) -> bool:
    """Whether a Parquet file has rows for training, rather than questions and answers."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        names = set(pq.read_schema(path).names)
    except (OSError, pa.ArrowException):
        return True  # the check of the rows says what is wrong with the file
    return names >= _ROW_COLUMNS


def _is_row(data: Sequence[Any]) -> bool:
    return bool(data) and isinstance(data[0], Mapping) and set(data[0]) >= _ROW_COLUMNS


def _record(item: Any) -> Mapping[str, Any]:
    if not isinstance(item, Mapping):
        raise DatasetError(f"A task is a mapping such as {{'query': ..., 'answer': ...}}, not {item!r:.80}.")
    return item


def _write_parquet(table: Any, path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    if isinstance(table, pa.Table):
        pq.write_table(table, path)
    elif isinstance(table, Sequence):
        pq.write_table(pa.Table.from_pylist(list(table)), path)
    elif write := getattr(table, "to_parquet", None):
        write(str(path))
    else:
        raise DatasetError(f"A dataset of the type {type(table).__name__} cannot be read. Give {_FORMS}.")
