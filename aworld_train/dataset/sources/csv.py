"""CSV files as tasks: a header, which shows the delimiter, then a record in each row.

Quoted fields may hold line ends. A record over several lines with broken quotes or another number of fields than the
header is taken back: only its first line is dropped, and reading continues with the next one. So a quote that is not
closed costs its own line.

Taking back does not make the time quadratic: a line that can leave a quote open adds a field to a record that began
before it, and a record with more fields than the header is given up (`_Lines`).
"""

import csv as csv_format
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from aworld_train.dataset.sources.columns import Columns, FileColumns
from aworld_train.dataset.sources.encodings import not_in_encoding
from aworld_train.dataset.sources.input_files import MAX_LINE_BYTES, input_files, read_lines
from aworld_train.dataset.sources.options import SourceOptions
from aworld_train.dataset.sources.records import Record, RecordReader
from aworld_train.dataset.sources.values import UnusableRecord, check_encodable
from aworld_train.dataset.tasks import Dropped, Task
from aworld_train.errors import DatasetError

DELIMITERS = ",;\t|"
MAX_RECORD_BYTES = 16 * 2**20
"""A longer record over several lines is not one."""

_MIN_WIDE_LINES = 8

BROKEN_QUOTES = "broken quotes"
WRONG_WIDTH = "other number of fields than the header has"


def csv(options: SourceOptions) -> Iterator[Task | Dropped]:
    columns, reader = Columns(options.columns), RecordReader(options)
    for path in input_files(options, (".csv", ".tsv")):
        file_columns = FileColumns(columns.table_plan)
        yield from reader.tasks(_records(path, file_columns, options.encoding), path.name)
        options.left_unused(path.name, file_columns.unused)


def _records(path: Path, columns: FileColumns, encoding: str) -> Iterator[Record]:
    lines = _Lines(_text_lines(path, encoding))
    first_line = lines.peek()
    if first_line is None:
        raise DatasetError(f"{path} is empty. A CSV file begins with a header that names its columns.")
    # The csv module's default limit is 128 KiB, and an answer that consists of tests can be longer.
    csv_format.field_size_limit(MAX_LINE_BYTES)
    reader = csv_format.reader(lines, delimiter=_delimiter(first_line), strict=True)
    try:
        header = tuple(next(reader))
        check_encodable(header)
    except csv_format.Error as error:
        raise DatasetError(f"The header of {path}, its first line, cannot be read: {error}.") from error
    except UnusableRecord as error:
        raise DatasetError(f"The header of {path} is {not_in_encoding(encoding)}.") from error
    lines.expect(len(header), reader.dialect.delimiter)
    plan = columns.plan(header, str(path))
    places = [(field, header.index(column)) for field, column in plan.top]
    while True:
        lines.begin_record()
        try:
            record = next(reader)
        except StopIteration:
            return
        except csv_format.Error:
            line, text = lines.take_back()
            yield line, text, BROKEN_QUOTES
            continue
        if len(record) != len(header) and lines.held > 1:
            line, text = lines.take_back()
            yield line, text, WRONG_WIDTH
            continue
        yield lines.first, record, _fields(record, len(header), places, encoding)


class _Lines:
    """The lines of a file for the csv module, which asks for one more while a quote is open.

    ``first`` is the number of the first line of the record that is being read, ``held`` how many lines of it were read.
    """

    def __init__(self, lines: Iterator[str]) -> None:
        self._lines = lines
        self._record: list[str] = []
        self._taken_back: deque[str] = deque()
        self._size = 0
        self._width, self._delimiter = 0, ""
        self.first = 1

    def expect(self, width: int, delimiter: str) -> None:
        """Give up records of many lines that have more than ``width`` fields."""
        self._width, self._delimiter = width, delimiter

    @property
    def held(self) -> int:
        return len(self._record)

    def begin_record(self) -> None:
        self.first += len(self._record)
        self._record.clear()
        self._size = 0

    def take_back(self) -> tuple[int, str]:
        """Put the lines of the record back but for the first; returns that with its number."""
        first, *others = self._record
        self._taken_back.extendleft(reversed(others))
        del self._record[1:]
        return self.first, first.rstrip("\r\n")

    def peek(self) -> str | None:
        line = next(self._lines, None)
        if line is not None:
            self._taken_back.append(line)
        return line

    def __iter__(self) -> "_Lines":
        return self

    def __next__(self) -> str:
        held = len(self._record)
        if held and (self._size > MAX_RECORD_BYTES or self._is_too_wide(held)):
            raise StopIteration
        line = self._taken_back.popleft() if self._taken_back else next(self._lines)
        self._record.append(line)
        self._size += len(line)
        return line

    def _is_too_wide(self, held: int) -> bool:
        """Whether the record so far has too many fields; looked at whenever it has become twice as long."""
        if held < _MIN_WIDE_LINES or held & (held - 1) or not self._width:
            return False
        try:
            fields = next(csv_format.reader(self._record, delimiter=self._delimiter))
        except csv_format.Error:
            return True
        return len(fields) > self._width


def _fields(
    record: list[str], width: int, places: list[tuple[str, int]], encoding: str
) -> dict[str, object] | str:
    if len(record) != width:
        return WRONG_WIDTH if record else "blank line"
    try:
        check_encodable(record)
    except UnusableRecord:
        return not_in_encoding(encoding)
    return {field: record[position] or None for field, position in places}


def _text_lines(path: Path, encoding: str) -> Iterator[str]:
    for number, line in read_lines(path, encoding):
        if line is None:
            raise DatasetError(
                f"{path}, line {number}, is longer than {MAX_LINE_BYTES >> 20} MiB; this is not a CSV file."
            )
        # A byte that is not UTF-8 makes only its own record unusable.
        yield line.decode("utf-8", errors="surrogateescape")


def _delimiter(header: str) -> str:
    bare = "".join(header.split('"')[::2])
    return max(DELIMITERS, key=bare.count)
