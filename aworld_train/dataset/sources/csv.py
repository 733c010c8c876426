"""CSV files as tasks: a header, then a record in each row; the header shows the delimiter.

Quoted fields may hold line ends. A quote that is not closed is an error in its record, which is dropped with its
lines, and never extends to a later quote.
"""

import csv as csv_format
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from aworld_train.dataset.sources.columns import Columns
from aworld_train.dataset.sources.input_files import MAX_LINE_BYTES, input_files, read_lines
from aworld_train.dataset.sources.options import SourceOptions
from aworld_train.dataset.sources.records import Record, RecordReader
from aworld_train.dataset.sources.values import UnusableRecord, check_encodable
from aworld_train.dataset.tasks import Dropped, Task
from aworld_train.errors import DatasetError

DELIMITERS = ",;\t|"


def csv(options: SourceOptions) -> Iterator[Task | Dropped]:
    """One item per record of the files.

    Raises:
        UsageError: The columns of the query or the answer cannot be found.
        DatasetError: A file cannot be read or has no header, or a record names an unknown scorer.
    """
    columns, reader = Columns(options.columns), RecordReader(options)
    for path in input_files(options, (".csv", ".tsv")):
        yield from reader.tasks(_records(path, columns), path.name)


def _records(path: Path, columns: Columns) -> Iterator[Record]:
    lines = _text_lines(path)
    header_line = next(lines, None)
    if header_line is None:
        raise DatasetError(f"{path} is empty. A CSV file begins with a header that names its columns.")
    # The csv module's default limit is 128 KiB, and an answer that consists of tests can be longer.
    csv_format.field_size_limit(MAX_LINE_BYTES)
    reader = csv_format.reader(chain([header_line], lines), delimiter=_delimiter(header_line), strict=True)
    try:
        header = tuple(next(reader))
    except csv_format.Error as error:
        raise DatasetError(f"The header of {path}, its first line, cannot be read: {error}.") from error
    plan = columns.table_plan(header, str(path))
    places = [(field, header.index(column)) for field, column in plan.top]
    while True:
        line = reader.line_num + 1
        try:
            record = next(reader)
        except StopIteration:
            return
        except csv_format.Error:
            yield line, f"lines {line} to {reader.line_num}", "broken quotes"
            continue
        yield line, record, _fields(record, len(header), places)


def _fields(record: list[str], width: int, places: list[tuple[str, int]]) -> dict[str, object] | str:
    """A record's values by field, or the reason why it has none."""
    if len(record) != width:
        return "other number of fields than the header has" if record else "blank line"
    try:
        check_encodable(record)
    except UnusableRecord as reason:
        return str(reason)
    return {field: record[place] or None for field, place in places}


def _text_lines(path: Path) -> Iterator[str]:
    for number, line in read_lines(path):
        if line is None:
            raise DatasetError(
                f"{path}, line {number}, is longer than {MAX_LINE_BYTES >> 20} MiB; this is no CSV file."
            )
        # A byte that is not UTF-8 makes only its own record unusable.
        yield line.decode("utf-8", errors="surrogateescape")


def _delimiter(header: str) -> str:
    """The delimiter that the header has most often outside quotes."""
    bare = "".join(header.split('"')[::2])
    return max(DELIMITERS, key=bare.count)
