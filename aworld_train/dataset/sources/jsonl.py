"""JSON lines as tasks: each line is an object with AgentRL's fields, or with columns that are mapped to them.

A line that cannot become a task is dropped with a reason; one that has a key twice cannot. Only the columns in use are
decoded, and numbers keep their digits. Runs of lines that all have the same columns become tasks at once
(`json_tables`).
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from aworld_train.dataset.sources.columns import ColumnPlan, Columns, FileColumns, PlanFor
from aworld_train.dataset.sources.encodings import UTF8, not_in_encoding
from aworld_train.dataset.sources.input_files import Line, input_files, read_lines
from aworld_train.dataset.sources.json_tables import Tables, runs
from aworld_train.dataset.sources.options import SourceOptions
from aworld_train.dataset.sources.records import Record, RecordReader
from aworld_train.dataset.sources.repeated_keys import (
    colons_of_all,
    count_colons,
    may_have_escaped_colon,
    repeated_key,
)
from aworld_train.dataset.sources.values import NOT_UNICODE, read_json
from aworld_train.dataset.tasks import Dropped, Task, TaskTable
from aworld_train.errors import DatasetError

_RECORD = msgspec.json.Decoder(dict[str, msgspec.Raw])
_MAX_KEY_CHARS = 40


def jsonl(options: SourceOptions) -> Iterator[Task | Dropped | TaskTable]:
    columns, reader = Columns(options.columns), RecordReader(options)
    paths = input_files(options, (".jsonl", ".ndjson"))
    for path in paths:
        file_columns = FileColumns(columns.plan)
        tables = Tables(path, file_columns.plan, reader)
        for run in runs(_lines(path, options.encoding)):
            if table := tables.read(run):
                yield table
            else:
                records = _records(run, path, file_columns.plan, options.encoding)
                yield from reader.tasks(records, path.name)
        options.left_unused(path.name, file_columns.unused)
    columns.check_columns_found(", ".join(map(str, paths)))


def json_records(path: Path, plan_for: PlanFor) -> Iterator[Record]:
    return _records(_lines(path, UTF8), path, plan_for, UTF8)


def _records(lines: Iterable[Line], path: Path, plan_for: PlanFor, encoding: str) -> Iterator[Record]:
    names: tuple[str, ...] = ()
    plan = ColumnPlan((), ())
    for line, raw in lines:
        if raw is None:
            yield line, b"", "line is too long"
            continue
        try:
            record = _RECORD.decode(raw)
            if (shape := tuple(record)) != names:
                names, plan = shape, plan_for(shape, f"{path}, line {line}")
            values = {column: read_json(record[column]) for column in plan.columns}
            key = _repeated_key(raw, record, values)
        except (ValueError, RecursionError):
            yield line, raw, _fault(raw, encoding)
            continue
        if key is not None:
            yield line, raw, f"the key {_shortened(key)!r} comes twice"
            continue
        yield line, raw, plan.fields(values)


def _repeated_key(raw: bytes, record: Mapping[str, msgspec.Raw], values: Mapping[str, object]) -> str | None:
    """A key that a line has twice; ``values`` are the values of the columns in use."""
    colons = len(record) + colons_of_all([*record, *values.values()])
    colons += sum(count_colons(bytes(record[name])) for name in record.keys() - values.keys())
    if count_colons(raw) == colons and not may_have_escaped_colon(raw):
        return None
    return repeated_key(raw, values.keys())


def _shortened(key: str) -> str:
    return key if len(key) <= _MAX_KEY_CHARS else f"{key[:_MAX_KEY_CHARS]}…"


def _lines(path: Path, encoding: str) -> Iterator[Line]:
    lines = read_lines(path, encoding)
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


def _fault(raw: bytes, encoding: str) -> str:
    if not raw.strip():
        return "blank line"
    try:
        raw.decode()
    except UnicodeDecodeError:
        return not_in_encoding(encoding)
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
    # Python's reader accepts NaN, infinity and lone surrogates; msgspec does not.
    try:
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeError:
        return NOT_UNICODE
    except ValueError:
        return "a number is NaN or infinite"
    return "a number is too large"
