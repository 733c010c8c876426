"""JSON lines as tasks: an object in each line, with AgentRL's fields or others that stand for them.

A line that is no task is left out with its reason. Only the columns in use are taken apart, and numbers keep their
digits. Lines are read in runs: where all of a run are of one make they become tasks at once (`json_tables`), else one
by one.
"""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from aworld_train.dataset.sources.columns import ColumnPlan, Columns, PlanFor, entry
from aworld_train.dataset.sources.input_files import Line, input_files, read_lines
from aworld_train.dataset.sources.json_tables import Tables, runs
from aworld_train.dataset.sources.options import SourceOptions
from aworld_train.dataset.sources.rows import Row, RowReader
from aworld_train.dataset.sources.values import NOT_UNICODE, WrittenNumber
from aworld_train.dataset.tasks import Dropped, Task, TaskTable
from aworld_train.errors import DatasetError

_ROW = msgspec.json.Decoder(dict[str, msgspec.Raw])
_VALUE = msgspec.json.Decoder(float_hook=WrittenNumber)


def jsonl(options: SourceOptions) -> Iterator[Task | Dropped | TaskTable]:
    """One item per line of the files, or one for many lines.

    Raises:
        UsageError: It cannot be told which column is which.
        DatasetError: A file cannot be read, is no JSON lines, or a row names an unknown scorer.
    """
    columns, reader = Columns(options.columns), RowReader(options)
    paths = input_files(options, (".jsonl", ".ndjson"))
    for path in paths:
        tables = Tables(path, columns.plan, reader)
        for run in runs(_lines(path)):
            if table := tables.read(run):
                yield table
            else:
                yield from reader.tasks(_rows(run, path, columns.plan), path.name)
    columns.check_met(", ".join(map(str, paths)))


def json_rows(path: Path, plan_for: PlanFor) -> Iterator[Row]:
    """The rows of a file.

    Args:
        path: The file.
        plan_for: Says where a row with these columns has the fields; also told how messages call the row.

    Raises:
        DatasetError: It cannot be read, or is one JSON array.
    """
    return _rows(_lines(path), path, plan_for)


def _rows(lines: Iterable[Line], path: Path, plan_for: PlanFor) -> Iterator[Row]:
    names: tuple[str, ...] = ()
    plan = ColumnPlan((), ())
    row_of, value_of = _ROW.decode, _VALUE.decode
    for line, raw in lines:
        if raw is None:
            yield line, b"", "line is too long"
            continue
        try:
            row = row_of(raw)
            if (shape := tuple(row)) != names:
                names, plan = shape, plan_for(shape, f"{path}, line {line}")
            fields = {field: value_of(row[column]) for field, column in plan.top}
            for field, column, inside in plan.nested:
                fields[field] = entry(value_of(row[column]), inside)
        except (ValueError, RecursionError):
            yield line, raw, _fault(raw)
        else:
            yield line, raw, fields


def _lines(path: Path) -> Iterator[Line]:
    """The lines of a file that is not one JSON array."""
    lines = read_lines(path)
    for line, raw in lines:
        if raw is not None and raw.lstrip()[:1] == b"[":
            raise DatasetError(
                f"{path} is one JSON array, and JSON lines have an object in each line. Turn it into them: "
                f"jq -c '.[]' {path.name} > {path.stem}-lines.jsonl"
            )
        yield line, raw
        if raw is not None and raw.strip():
            break
    yield from lines


def _fault(raw: bytes) -> str:
    """Why a line is no row; asked where decoding it has failed."""
    if not raw.strip():
        return "blank line"
    try:
        value = json.loads(raw)
    except UnicodeError:
        return NOT_UNICODE
    except RecursionError:
        return "nested too deeply"
    except ValueError:
        return "not JSON"
    if not isinstance(value, dict):
        return "not a JSON object"
    # Python's own reader takes what the strict one does not.
    try:
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeError:
        return NOT_UNICODE
    except ValueError:
        return "a number is NaN or infinite"
    return "a number is too large"
