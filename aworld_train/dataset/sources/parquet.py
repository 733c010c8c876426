"""Parquet files as tasks, batch by batch; columns may have any type that can be said as text."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from aworld_train.dataset.sources.columns import ColumnPlan, Columns, PlanFor, entry
from aworld_train.dataset.sources.input_files import input_files, unreadable
from aworld_train.dataset.sources.options import SourceOptions
from aworld_train.dataset.sources.rows import Row, RowReader
from aworld_train.dataset.tasks import Dropped, Task

BATCH_ROWS = 1024

_NO_TEXT = b"\xff"
"""Stands for a text that is no UTF-8."""


def parquet(options: SourceOptions) -> Iterator[Task | Dropped]:
    """One item per row of the files.

    Raises:
        UsageError: It cannot be told which column is which.
        DatasetError: A file cannot be read, or a row names an unknown scorer.
    """
    columns, reader = Columns(options.columns), RowReader(options)
    for path in input_files(options, (".parquet",)):
        yield from reader.tasks(parquet_rows(path, columns.table_plan), path.name)


def parquet_rows(path: Path, plan_for: PlanFor) -> Iterator[Row]:
    """The rows of a file; only columns in use are read.

    Args:
        path: The file.
        plan_for: Says where a row with these columns has the fields; also told how messages call the file.

    Raises:
        UsageError: It cannot be told which column is which.
        DatasetError: It cannot be read.
    """
    try:
        with pq.ParquetFile(path) as file:
            plan = plan_for(tuple(file.schema_arrow.names), str(path))
            yield from batch_rows(file.iter_batches(BATCH_ROWS, columns=plan.columns), plan)
    except (pa.ArrowException, OSError) as error:
        raise unreadable(path, error) from error


def batch_rows(batches: Iterable[pa.RecordBatch], plan: ColumnPlan) -> Iterator[Row]:
    """The rows of batches that have the plan's columns."""
    number = 0
    columns = plan.columns
    for batch in batches:
        values = [_values(batch.column(column)) for column in columns]
        for row in zip(*values, strict=True):
            number += 1
            cells = dict(zip(columns, row, strict=True))
            fields = {field: cells[column] for field, column in plan.top}
            for field, column, inside in plan.nested:
                fields[field] = entry(cells[column], inside)
            yield number, cells, fields


def _values(column: pa.Array) -> list[object]:
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _values(column.dictionary_decode())
    if pa.types.is_float16(kind) or pa.types.is_float32(kind):
        # By way of text, so that 0.1 stays 0.1 and not what it is in twice the bits.
        column = column.cast(pa.string()).cast(pa.float64())
    elif pa.types.is_temporal(kind) and not pa.types.is_duration(kind):
        column = column.cast(pa.string())
    try:
        return column.to_pylist()  # type: ignore[no-any-return]
    except UnicodeDecodeError:
        return [_value(one) for one in column]


def _value(scalar: pa.Scalar) -> object:
    try:
        return scalar.as_py()
    except UnicodeDecodeError:
        return _NO_TEXT
