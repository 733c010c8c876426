"""CSV files as tasks: a header, then a task in each row; the delimiter is found out from the header.

Quoted fields may hold line ends. Quotes that are not closed are never read on to some later quote: what they spoil is
left out, with its lines.
"""

import csv as csv_format
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from aworld_train.dataset.sources.columns import Columns
from aworld_train.dataset.sources.input_files import LONGEST_LINE, input_files, read_lines
from aworld_train.dataset.sources.options import SourceOptions
from aworld_train.dataset.sources.rows import Row, RowReader
from aworld_train.dataset.sources.values import UnusableRow, check_encodable
from aworld_train.dataset.tasks import Dropped, Task
from aworld_train.errors import DatasetError

DELIMITERS = ",;\t|"


def csv(options: SourceOptions) -> Iterator[Task | Dropped]:
    """One item per row of the files.

    Raises:
        UsageError: It cannot be told which column is which.
        DatasetError: A file cannot be read or has no header, or a row names an unknown scorer.
    """
    columns, reader = Columns(options.columns), RowReader(options)
    for path in input_files(options, (".csv", ".tsv")):
        yield from reader.tasks(_rows(path, columns), path.name)


def _rows(path: Path, columns: Columns) -> Iterator[Row]:
    lines = _text_lines(path)
    first = next(lines, None)
    if first is None:
        raise DatasetError(f"{path} is empty. A CSV file begins with a header that names its columns.")
    # The module's own limit, of all readers: 128 KiB, less than an answer with tests may have.
    csv_format.field_size_limit(LONGEST_LINE)
    reader = csv_format.reader(chain([first], lines), delimiter=_delimiter(first), strict=True)
    try:
        header = tuple(next(reader))
    except csv_format.Error as error:
        raise DatasetError(f"The header of {path}, its first line, cannot be read: {error}.") from error
    plan = columns.table_plan(header, str(path))
    places = [(field, header.index(column)) for field, column in plan.top]
    while True:
        line = reader.line_num + 1
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv_format.Error:
            yield line, f"lines {line} to {reader.line_num}", "broken quotes"
            continue
        yield line, row, _fields(row, len(header), places)


def _fields(row: list[str], width: int, places: list[tuple[str, int]]) -> dict[str, object] | str:
    """A row's values by field, or why it has none."""
    if len(row) != width:
        return "other number of fields than the header has" if row else "blank line"
    try:
        check_encodable(row)
    except UnusableRow as reason:
        return str(reason)
    return {field: row[place] or None for field, place in places}


def _text_lines(path: Path) -> Iterator[str]:
    for number, line in read_lines(path):
        if line is None:
            raise DatasetError(
                f"{path}, line {number}, is longer than {LONGEST_LINE >> 20} MiB; this is no CSV file."
            )
        # A byte that is no UTF-8 spoils its row alone.
        yield line.decode("utf-8", errors="surrogateescape")


def _delimiter(header: str) -> str:
    """The delimiter that the header has most often outside quotes."""
    bare = "".join(header.split('"')[::2])
    return max(DELIMITERS, key=bare.count)
