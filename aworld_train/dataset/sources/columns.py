"""Which column of the input gives which field of a task.

Asked for with ``--map field=column``, else the column that has the field's own name, else the one column whose name
commonly stands for it; capitals, spaces and underscores do not matter ("Final answer" is ``final_answer``). Where two
columns could be meant nothing is guessed. ``a.b`` is the entry ``b`` of column ``a``, unless a column has that name.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from aworld_train.errors import UsageError, nearest

Path = tuple[str, ...]

NAMES: dict[str, tuple[str, ...]] = {
    "id": ("task_id", "question_id", "qid", "uuid", "uid"),
    "query": ("question", "prompt", "problem", "input", "instruction", "task", "messages"),
    "answer": (
        "final_answer",
        "ground_truth",
        "solution",
        "target",
        "expected_answer",
        "correct_answer",
        "reference_answer",
        "gold",
        "label",
    ),
    "scorer": (),
    "answer_schema": (),
    "system": ("system_prompt",),
    "level": (),
    "attachments": (),
    "data_source": (),
}
"""The fields of a task, each with other names that its column commonly has."""

NEEDED = ("query", "answer")

# Where verl's row schema, which this package writes too, keeps them.
_IN_VERL_ROWS: dict[str, Path] = {
    "id": ("extra_info", "id"),
    "answer": ("reward_model", "ground_truth"),
    "scorer": ("extra_info", "scorer"),
    "answer_schema": ("extra_info", "answer_schema"),
    "level": ("extra_info", "level"),
    "attachments": ("extra_info", "attachments"),
}
_IS_VERL = {"prompt", "reward_model", "extra_info"}
_SHAPES_KEPT = 256


@dataclass(frozen=True)
class ColumnPlan:
    """Where rows of one shape have the fields.

    Attributes:
        top: Field and column, for columns that are the field.
        nested: Field, column and the path in it, for entries of columns.
    """

    top: tuple[tuple[str, str], ...]
    nested: tuple[tuple[str, str, Path], ...]

    @property
    def columns(self) -> list[str]:
        """The columns to read, each once."""
        return list(
            dict.fromkeys([column for _, column in self.top] + [column for _, column, _ in self.nested])
        )


PlanFor = Callable[[Path, str], ColumnPlan]
"""From the columns of a row, and how a message calls it, to where it has the fields."""


class Columns:
    """Finds the fields in rows, once for each set of column names that it meets."""

    def __init__(self, asked: Mapping[str, str]) -> None:
        """Args:
            asked: Column by field, as given with ``--map``.

        Raises:
            UsageError: There is no such field.
        """
        for field in asked:
            if field not in NAMES:
                hint = nearest(field, set(NAMES))
                meant = f" Did you mean {hint}={asked[field]}?" if hint else ""
                raise UsageError(
                    f"--map {field}={asked[field]}: there are the fields {', '.join(NAMES)}.{meant}"
                )
        self._asked = asked
        self._unmet = dict(asked)
        self._lacking = dict.fromkeys(NEEDED)
        self._met: dict[str, None] = {}
        self._plans: dict[Path, ColumnPlan] = {}

    def plan(self, names: Path, where: str) -> ColumnPlan:
        """Where rows with these columns have the fields.

        Args:
            names: The row's columns.
            where: How a message calls the row.

        Raises:
            UsageError: More than one column could be the query, or the answer.
        """
        plan = self._plans.get(names)
        if plan is None:
            plan = self._make(names, where)
            if len(self._plans) < _SHAPES_KEPT:
                self._plans[names] = plan
        return plan

    def table_plan(self, names: Path, where: str) -> ColumnPlan:
        """As `plan`, for a table, all of whose rows have these columns.

        Raises:
            UsageError: More than one column could be the query or the answer, or none is.
        """
        plan = self.plan(names, where)
        self.check_met(where)
        return plan

    def check_met(self, where: str) -> None:
        """See that the columns asked for, the query and the answer were in some row, if there were rows at all.

        Raises:
            UsageError: One was in none.
        """
        if not self._met:
            return
        present = f"there are the columns {', '.join(map(repr, self._met))}"
        for field, column in self._unmet.items():
            hint = nearest(column.split(".")[0], set(self._met))
            meant = f" Did you mean --map {field}={hint!r}?" if hint else ""
            raise UsageError(f"--map {field}={column}: {where} has no column {column!r}; {present}.{meant}")
        if self._lacking:
            fields = " or the ".join(self._lacking)
            raise UsageError(
                f"{where} has no column that is known to be the {fields}; {present}. "
                f"Say which it is: --map {next(iter(self._lacking))}=COLUMN."
            )

    def _make(self, names: Path, where: str) -> ColumnPlan:
        if len(self._met) < _SHAPES_KEPT:
            self._met.update(dict.fromkeys(names))
        found: dict[str, Path] = {}
        for field in NAMES:
            path = self._asked_path(field, names) if field in self._asked else _own_path(field, names, where)
            if path is not None:
                if names.count(path[0]) > 1:
                    raise UsageError(
                        f"{where} has the column {path[0]!r}, which gives the {field}, more than once."
                    )
                found[field] = path
                self._lacking.pop(field, None)
        if set(names) >= _IS_VERL:
            # Without the template that the prompt puts it in.
            found["subject"] = ("extra_info", "question")
        return ColumnPlan(
            top=tuple((field, path[0]) for field, path in found.items() if len(path) == 1),
            nested=tuple((field, path[0], path[1:]) for field, path in found.items() if len(path) > 1),
        )

    def _asked_path(self, field: str, names: Path) -> Path | None:
        column = self._asked[field]
        path = (column,) if column in names else tuple(column.split("."))
        if path[0] not in names:
            return None
        self._unmet.pop(field, None)
        return path


def entry(value: object, path: Path) -> object:
    """What lies in a value at a path; None where nothing does."""
    for name in path:
        if not isinstance(value, Mapping):
            return None
        value = value.get(name)
    return value


def _own_path(field: str, names: Path, where: str) -> Path | None:
    if field in names:
        return (field,)
    plain = {name: _plain(name) for name in names}
    wanted = {_plain(field): -1, **{_plain(alias): rank for rank, alias in enumerate(NAMES[field])}}
    meant = [name for name in names if plain[name] in wanted]
    if len(meant) > 1 and field in NEEDED:
        raise UsageError(
            f"{where}: {' and '.join(map(repr, meant))} could each be the {field}. "
            f"Say which it is: --map {field}={meant[0]!r}."
        )
    if meant:
        # Of names that differ in spelling alone always the same one, whatever the order of the columns.
        return (min(meant, key=lambda name: (wanted[plain[name]], name)),)
    path = _IN_VERL_ROWS.get(field)
    return path if path and set(names) >= _IS_VERL else None


def _plain(name: str) -> str:
    return re.sub(r"[\W_]+", "", name).casefold()
