"""JSON lines that all have the same columns become a table of tasks, without a `Task` for each.

Where all lines of a run have the columns of its first line, they are decoded into structs with these columns, and the
values are checked column by column. Any other run is read line by line, which gives the reason for each dropped line.
"""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from aworld_train.dataset.sources.columns import PlanFor
from aworld_train.dataset.sources.input_files import Line
from aworld_train.dataset.sources.records import IN_TABLES, RecordReader
from aworld_train.dataset.sources.repeated_keys import (
    colons_of_all,
    count_colons,
    may_have_escaped_colon,
)
from aworld_train.dataset.sources.values import WrittenNumber
from aworld_train.dataset.tasks import TaskTable

_RUN_LINES = 1024
_RUN_BYTES = 4 << 20
_MAX_SHAPES = 16
"""With more different sets of columns than this, the lines of a file are read one by one."""

_NAMES = msgspec.json.Decoder(dict[str, msgspec.Raw])


class _Shape(NamedTuple):
    """How lines with certain columns are decoded into structs.

    ``places`` has each field with its attribute, ``unused`` the attributes that hold the JSON text of other columns.
    """

    decode: Callable[[bytes], Any]
    places: tuple[tuple[str, str], ...]
    unused: tuple[str, ...]
    colons: int


def runs(lines: Iterable[Line]) -> Iterator[list[Line]]:
    run: list[Line] = []
    size = 0
    for line in lines:
        run.append(line)
        size += len(line[1] or b"")
        if len(run) == _RUN_LINES or size > _RUN_BYTES:
            yield run
            run, size = [], 0
    if run:
        yield run


class Tables:
    def __init__(self, path: Path, plan_for: PlanFor, reader: RecordReader) -> None:
        self._path, self._plan_for, self._reader = path, plan_for, reader
        self._shapes: dict[tuple[str, ...], _Shape | None] = {}

    def read(self, run: list[Line]) -> TaskTable | None:
        """The tasks of a run; None where it has to be read line by line."""
        try:
            first, raw = run[0]
            names = tuple(_NAMES.decode(raw or b""))
            if names not in self._shapes:
                if len(self._shapes) == _MAX_SHAPES:
                    return None
                self._shapes[names] = _shape(names, self._plan_for, f"{self._path}, line {first}")
            if (shape := self._shapes[names]) is None:
                return None
            decode = shape.decode
            records = [decode(raw or b"") for _, raw in run]
            values = {
                attribute: [getattr(record, attribute) for record in records] for _, attribute in shape.places
            }
            if _may_repeat_key(run, records, values.values(), shape):
                return None
        except (ValueError, RecursionError):
            return None
        columns = {field: values[attribute] for field, attribute in shape.places}
        return self._reader.table(columns, [line for line, _ in run], self._path.name)


def _may_repeat_key(run: list[Line], records: list[Any], columns: Iterable[list[Any]], shape: _Shape) -> bool:
    """Whether the colons of a run leave it open that a line has a key twice, which is then found line by line."""
    whole = b"".join([raw or b"" for _, raw in run])
    unused = b"".join([getattr(record, attribute) for attribute in shape.unused for record in records])
    in_values = sum(map(colons_of_all, columns))
    expected = shape.colons * len(run) + count_colons(unused) + in_values
    return count_colons(whole) != expected or bool(in_values and may_have_escaped_colon(whole))


def _shape(names: tuple[str, ...], plan_for: PlanFor, where: str) -> _Shape | None:
    """How lines with these columns are decoded; None where they have to be read one by one."""
    plan = plan_for(names, where)
    if plan.nested or not IN_TABLES.issuperset(field for field, _ in plan.top):
        return None
    used = set(plan.columns)
    attributes = {name: f"column_{number}" for number, name in enumerate(names)}
    record = msgspec.defstruct(
        "Row",
        [
            (attribute, Any if name in used else msgspec.Raw, msgspec.field(name=name))
            for name, attribute in attributes.items()
        ],
        forbid_unknown_fields=True,
        gc=False,
    )
    decoder = msgspec.json.Decoder(record, float_hook=WrittenNumber)
    return _Shape(
        decoder.decode,
        places=tuple((field, attributes[column]) for field, column in plan.top),
        unused=tuple(attribute for name, attribute in attributes.items() if name not in used),
        colons=len(names) + colons_of_all(names),
    )
