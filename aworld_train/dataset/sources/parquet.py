"""Parquet files as tasks, batch by batch; columns may have any type that can be written as text."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pyarrow as pa

from aworld_train.dataset.arrays import open_streamed
from aworld_train.dataset.sources.arrow_values import check_readable, column_values
from aworld_train.dataset.sources.columns import ColumnPlan, Columns, FileColumns, PlanFor
from aworld_train.dataset.sources.features import features_of
from aworld_train.dataset.sources.input_files import input_files, unreadable
from aworld_train.dataset.sources.options import SourceOptions
from aworld_train.dataset.sources.records import Record, RecordReader
from aworld_train.dataset.tasks import Dropped, Task

BATCH_RECORDS = 1024


def parquet(options: SourceOptions) -> Iterator[Task | Dropped]:
    columns, reader = Columns(options.columns), RecordReader(options)
    for path in input_files(options, (".parquet",)):
        file_columns = FileColumns(columns.table_plan)
        yield from reader.tasks(parquet_records(path, file_columns.plan), path.name)
        options.left_unused(path.name, file_columns.unused)


def parquet_records(path: Path, plan_for: PlanFor) -> Iterator[Record]:
    try:
        with open_streamed(path) as file:
            plan = plan_for(tuple(file.schema_arrow.names), str(path))
            batches = file.iter_batches(BATCH_RECORDS, columns=plan.columns)
            yield from batch_records(batches, plan, features_of(file.schema_arrow), str(path))
    except (pa.ArrowException, OSError) as error:
        raise unreadable(path, error) from error


def batch_records(
    batches: Iterable[pa.RecordBatch], plan: ColumnPlan, features: Mapping[str, object], where: str
) -> Iterator[Record]:
    number = 0
    columns = plan.columns
    paths = [*((field, column, ()) for field, column in plan.top), *plan.nested]
    for batch in batches:
        for field, column, inside in paths:
            name = ".".join((column, *inside))
            what = f"{where}: the column {name!r}, which gives the {field}"
            check_readable(batch.schema.field(column).type, inside, what)
        values = [column_values(batch.column(column), features.get(column)) for column in columns]
        for row in zip(*values, strict=True):
            number += 1
            cells = dict(zip(columns, row, strict=True))
            yield number, cells, plan.fields(cells)
