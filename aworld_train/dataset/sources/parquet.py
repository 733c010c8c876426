"""Parquet files as tasks, batch by batch; columns may have any type that can be written as text."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa

from aworld_train.dataset.arrays import open_streamed
from aworld_train.dataset.sources.columns import ColumnPlan, Columns, PlanFor, value_at
from aworld_train.dataset.sources.input_files import input_files, unreadable
from aworld_train.dataset.sources.options import SourceOptions
from aworld_train.dataset.sources.records import Record, RecordReader
from aworld_train.dataset.tasks import Dropped, Task

BATCH_RECORDS = 1024

_NO_TEXT = b"\xff"
"""Stands for a text that is not UTF-8."""


def parquet(options: SourceOptions) -> Iterator[Task | Dropped]:
    """One item per record of the files.

    Raises:
        UsageError: The columns of the query or the answer cannot be found.
        DatasetError: A file cannot be read, or a record names an unknown scorer.
    """
    columns, reader = Columns(options.columns), RecordReader(options)
    for path in input_files(options, (".parquet",)):
        yield from reader.tasks(parquet_records(path, columns.table_plan), path.name)


def parquet_records(path: Path, plan_for: PlanFor) -> Iterator[Record]:
    """The records of a file; only columns in use are read.

    Args:
        path: The file.
        plan_for: Finds the fields from the columns of the file and its name in error messages.

    Raises:
        UsageError: The columns of the query or the answer cannot be found.
        DatasetError: It cannot be read.
    """
    try:
        with open_streamed(path) as file:
            plan = plan_for(tuple(file.schema_arrow.names), str(path))
            yield from batch_records(file.iter_batches(BATCH_RECORDS, columns=plan.columns), plan)
    except (pa.ArrowException, OSError) as error:
        raise unreadable(path, error) from error


def batch_records(batches: Iterable[pa.RecordBatch], plan: ColumnPlan) -> Iterator[Record]:
    """The records of batches that have the plan's columns."""
    number = 0
    columns = plan.columns
    for batch in batches:
        values = [_values(batch.column(column)) for column in columns]
        for row in zip(*values, strict=True):
            number += 1
            cells = dict(zip(columns, row, strict=True))
            fields = {field: cells[column] for field, column in plan.top}
            for field, column, inside in plan.nested:
                fields[field] = value_at(cells[column], inside)
            yield number, cells, fields


def _values(column: pa.Array) -> list[object]:
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _values(column.dictionary_decode())
    if pa.types.is_float16(kind) or pa.types.is_float32(kind):
        # Cast by way of text, so that 0.1 stays 0.1 and does not become 0.10000000149011612.
        column = column.cast(pa.string()).cast(pa.float64())
    elif pa.types.is_temporal(kind) and not pa.types.is_duration(kind):
        column = column.cast(pa.string())
    try:
        return column.to_pylist()  # type: ignore[no-any-return]
    except UnicodeDecodeError:
        return [_value(scalar) for scalar in column]


def _value(scalar: pa.Scalar) -> object:
    try:
        return scalar.as_py()
    except UnicodeDecodeError:
        return _NO_TEXT
