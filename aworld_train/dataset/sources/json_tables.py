"""JSON lines of one make as a table of tasks, without a row for each.

Lines are read in runs. What the first of a run has for columns the others must have too; then all are decoded into
structs with just these, and their values checked column by column. Whatever does not fit is left to be read line by
line, which says of every line what is wrong with it.
"""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from aworld_train.dataset.sources.columns import PlanFor
from aworld_train.dataset.sources.input_files import Line
from aworld_train.dataset.sources.rows import IN_TABLES, RowReader
from aworld_train.dataset.sources.values import WrittenNumber
from aworld_train.dataset.tasks import TaskTable

_RUN_LINES = 1024
_RUN_BYTES = 4 << 20
_MAX_SHAPES = 16
"""Lines of a file that has more sets of columns are hardly of one make."""

_NAMES = msgspec.json.Decoder(dict[str, msgspec.Raw])

_Shape = tuple[Callable[[bytes], Any], tuple[tuple[str, str], ...]]
"""Decodes a line with certain columns, and the fields of tasks with the attributes that then have them."""


def runs(lines: Iterable[Line]) -> Iterator[list[Line]]:
    """The lines in runs of bounded size."""
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
    """Reads the runs of one file; knows the sets of columns that it has met."""

    def __init__(self, path: Path, plan_for: PlanFor, reader: RowReader) -> None:
        self._path, self._plan_for, self._reader = path, plan_for, reader
        self._known: dict[tuple[str, ...], _Shape | None] = {}

    def read(self, run: list[Line]) -> TaskTable | None:
        """The tasks of a run; None where a line of it has to be read by itself.

        Raises:
            UsageError: It cannot be told which column is which.
        """
        try:
            first, raw = run[0]
            names = tuple(_NAMES.decode(raw or b""))
            if names not in self._known:
                if len(self._known) == _MAX_SHAPES:
                    return None
                self._known[names] = _shape(names, self._plan_for, f"{self._path}, line {first}")
            if (shape := self._known[names]) is None:
                return None
            decode, places = shape
            rows = [decode(raw or b"") for _, raw in run]
        except (ValueError, RecursionError):
            return None
        columns = {field: [getattr(row, place) for row in rows] for field, place in places}
        return self._reader.table(columns, [line for line, _ in run], self._path.name)


def _shape(names: tuple[str, ...], plan_for: PlanFor, where: str) -> _Shape | None:
    """How lines with these columns are read; None for line by line."""
    plan = plan_for(names, where)
    if plan.nested or not IN_TABLES.issuperset(field for field, _ in plan.top):
        return None
    used = set(plan.columns)
    attributes = {name: f"column_{number}" for number, name in enumerate(names)}
    row = msgspec.defstruct(
        "Row",
        [
            (attribute, Any if name in used else msgspec.Raw, msgspec.field(name=name))
            for name, attribute in attributes.items()
        ],
        forbid_unknown_fields=True,
        gc=False,
    )
    decoder = msgspec.json.Decoder(row, float_hook=WrittenNumber)
    return decoder.decode, tuple((field, attributes[column]) for field, column in plan.top)
