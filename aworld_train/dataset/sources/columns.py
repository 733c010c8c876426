"""Which column of the input gives which field of a task.

It is the column of ``--map field=column``, else the column with the field's own name, else the only column with another
common name of the field; capitals, spaces and underscores do not matter. Where two columns fit, it is an error. ``a.b``
is the value ``b`` inside column ``a``, unless a column has the name ``a.b``.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from aworld_train.errors import UsageError, suggestion

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
        "answer_key",
        "reference_answer",
        "gold",
        "label",
    ),
    "ground_truths": ("answers", "golden_answers", "gold_answers", "possible_answers", "answer_aliases"),
    "choices": ("options",),
    "scorer": (),
    "answer_schema": (),
    "system": ("system_prompt",),
    "level": (),
    "tags": ("tag",),
    "attachments": (),
    "image_uris": (),
    "data_source": (),
}
"""The fields of a task, each with other common names of its column."""

NEEDED = ("query", "answer")

CHOICE_LETTERS = "ABCDEFGHIJ"
CHOICE_FIELDS = {f"choice_{letter}": letter for letter in CHOICE_LETTERS}
"""The fields of choices that have a column each, and their labels. The columns are called ``A``, ``option_a``, ``opa``
or the like, and there are at least those of A and B."""
_CHOICE_PREFIXES = ("option", "choice", "op")
# Of the names of the answer, those that a column of all right answers may stand beside.
_FIRST_ANSWERS = ("answer", "ground_truth")
# These fields are not in a column that --map gives to another one.
_NOT_SHARED = ("ground_truths", "choices")

# Where rows of verl's schema, which this package writes too, have the fields.
_IN_TRAINING_ROWS: dict[str, Path] = {
    "id": ("extra_info", "id"),
    "answer": ("reward_model", "ground_truth"),
    "ground_truths": ("extra_info", "ground_truths"),
    "scorer": ("extra_info", "scorer"),
    "answer_schema": ("extra_info", "answer_schema"),
    "level": ("extra_info", "level"),
    "tags": ("extra_info", "tags"),
    "attachments": ("extra_info", "attachments"),
    "image_uris": ("extra_info", "images"),
}
_TRAINING_COLUMNS = {"prompt", "reward_model", "extra_info"}
# Where conversations have them, which `runs export --format messages` writes.
_IN_CONVERSATIONS: dict[str, Path] = {
    "answer": ("metadata", "correct_answer"),
    "data_source": ("metadata", "source"),
    **{
        name: ("metadata", name)
        for name in ("id", "ground_truths", "scorer", "answer_schema", "level", "attachments")
    },
    "image_uris": ("metadata", "images"),
}
_CONVERSATION_COLUMNS = {"messages", "tools", "metadata"}
_MAX_SHAPES = 256


@dataclass(frozen=True)
class ColumnPlan:
    """Where records of one shape have the fields: in a column, or at a path inside a column's value."""

    top: tuple[tuple[str, str], ...]
    nested: tuple[tuple[str, str, Path], ...]

    @property
    def columns(self) -> list[str]:
        columns = [column for _, column in self.top] + [column for _, column, _ in self.nested]
        return list(dict.fromkeys(columns))

    def fields(self, values: Mapping[str, object]) -> dict[str, object]:
        top = {field: values[column] for field, column in self.top}
        return top | {field: value_at(values[column], path) for field, column, path in self.nested}


PlanFor = Callable[[Path, str], ColumnPlan]
"""Maps the columns of a record, and its name in error messages, to where it has the fields."""


class Columns:
    def __init__(self, mapping: Mapping[str, str]) -> None:
        for field in mapping:
            if field not in NAMES:
                hint = suggestion(field, NAMES)
                raise UsageError(
                    f"--map {field}={mapping[field]}: there are the fields {', '.join(NAMES)}.{hint}"
                )
        self._mapping = mapping
        self._unused_mapping = dict(mapping)
        self._missing_fields = dict.fromkeys(NEEDED)
        self._columns_found: dict[str, None] = {}
        self._plans: dict[Path, ColumnPlan] = {}

    def plan(self, names: Path, where: str) -> ColumnPlan:
        plan = self._plans.get(names)
        if plan is None:
            plan = self._make(names, where)
            if len(self._plans) < _MAX_SHAPES:
                self._plans[names] = plan
        return plan

    def table_plan(self, names: Path, where: str) -> ColumnPlan:
        """As `plan`, for a table: all its records have these columns."""
        plan = self.plan(names, where)
        self.check_columns_found(where)
        return plan

    def check_columns_found(self, where: str) -> None:
        """Check that some record had each column of ``--map``, the query and the answer, if there were records."""
        if not self._columns_found:
            return
        present = f"there are the columns {', '.join(map(repr, self._columns_found))}"
        for field, column in self._unused_mapping.items():
            hint = suggestion(column.split(".")[0], self._columns_found)
            raise UsageError(f"--map {field}={column}: {where} has no column {column!r}; {present}.{hint}")
        if self._missing_fields:
            fields = " or the ".join(self._missing_fields)
            raise UsageError(
                f"{where} has no column that is known to be the {fields}; {present}. "
                f"Say which it is: --map {next(iter(self._missing_fields))}=COLUMN."
            )

    def _make(self, names: Path, where: str) -> ColumnPlan:
        if len(self._columns_found) < _MAX_SHAPES:
            self._columns_found.update(dict.fromkeys(names))
        paths: dict[str, Path] = {}
        for field in NAMES:
            path = self._path(field, names, where)
            if path is not None:
                if names.count(path[0]) > 1:
                    raise UsageError(
                        f"{where} has the column {path[0]!r}, which gives the {field}, more than once."
                    )
                paths[field] = path
                self._missing_fields.pop("answer" if field == "ground_truths" else field, None)
        if "choices" not in paths:
            paths |= _choice_columns(names)
        if set(names) >= _TRAINING_COLUMNS:
            # The question alone: the prompt may have a template around it.
            paths["subject"] = ("extra_info", "question")
        if set(names) == _CONVERSATION_COLUMNS and "query" not in self._mapping:
            # The task's own prompt: the agent may have added to it.
            paths["prompt"] = ("metadata", "prompt")
        return ColumnPlan(
            top=tuple((field, path[0]) for field, path in paths.items() if len(path) == 1),
            nested=tuple((field, path[0], path[1:]) for field, path in paths.items() if len(path) > 1),
        )

    def _path(self, field: str, names: Path, where: str) -> Path | None:
        if field in self._mapping:
            return self._mapped_path(field, names)
        # --map answer=COLUMN names the only answer, and --map ground_truths=COLUMN all of them.
        if field == "ground_truths" and "answer" in self._mapping:
            return None
        path = _default_path(field, names, where)
        if field in _NOT_SHARED and path and path[0] in self._mapping.values():
            return None
        if field == "answer" and path and path[0] in names:
            if "ground_truths" in self._mapping:
                return path if _is_called(path, _FIRST_ANSWERS) else None
            several = self._path("ground_truths", names, where)
            if several and len(several) == 1 and not _is_called(path, _FIRST_ANSWERS):
                raise _ambiguous("answer", [path[0], several[0]], where)
        return path

    def _mapped_path(self, field: str, names: Path) -> Path | None:
        column = self._mapping[field]
        path = (column,) if column in names else tuple(column.split("."))
        if path[0] not in names:
            return None
        self._unused_mapping.pop(field, None)
        return path


class FileColumns:
    """The columns of one file, and which of them no field of a task uses."""

    def __init__(self, plan_for: PlanFor) -> None:
        self._plan_for = plan_for
        self._shapes: set[Path] = set()
        self._found: dict[str, None] = {}
        self._used: set[str] = set()

    def plan(self, names: Path, where: str) -> ColumnPlan:
        plan = self._plan_for(names, where)
        if names not in self._shapes and len(self._shapes) < _MAX_SHAPES:
            self._shapes.add(names)
            self._used.update(plan.columns)
            if len(self._found) < _MAX_SHAPES:
                self._found.update(dict.fromkeys(names))
        return plan

    @property
    def unused(self) -> list[str]:
        return [name for name in self._found if name not in self._used]


def value_at(value: object, path: Path) -> object:
    for name in path:
        if not isinstance(value, Mapping):
            return None
        value = value.get(name)
    return value


def _default_path(field: str, names: Path, where: str) -> Path | None:
    if field in names:
        return (field,)
    plain = {name: _plain(name) for name in names}
    rank_by_name = {_plain(field): -1, **{_plain(alias): rank for rank, alias in enumerate(NAMES[field])}}
    candidates = [name for name in names if plain[name] in rank_by_name]
    if len(candidates) > 1 and field in NEEDED:
        raise _ambiguous(field, candidates, where)
    if candidates:
        # Names that differ only in spelling are sorted, so that the order of the columns does not decide.
        return (min(candidates, key=lambda name: (rank_by_name[plain[name]], name)),)
    if set(names) >= _TRAINING_COLUMNS:
        return _IN_TRAINING_ROWS.get(field)
    return _IN_CONVERSATIONS.get(field) if set(names) == _CONVERSATION_COLUMNS else None


def _ambiguous(field: str, candidates: list[str], where: str) -> UsageError:
    return UsageError(
        f"{where}: {' and '.join(map(repr, candidates))} could each be the {field}. "
        f"Say which it is: --map {field}={candidates[0]!r}."
    )


def _is_called(path: Path, names: tuple[str, ...]) -> bool:
    """Whether a path is a column of one of these names, or not a column of its own."""
    return len(path) > 1 or _plain(path[0]) in map(_plain, names)


def _choice_columns(names: Path) -> dict[str, Path]:
    plain = {_plain(name): name for name in names}
    columns: dict[str, Path] = {}
    for field, letter in CHOICE_FIELDS.items():
        spellings = (f"{prefix}{letter.casefold()}" for prefix in _CHOICE_PREFIXES)
        column = letter if letter in names else next((plain[s] for s in spellings if s in plain), None)
        if column is None:
            break
        columns[field] = (column,)
    return columns if len(columns) > 1 else {}


def _plain(name: str) -> str:
    return re.sub(r"[\W_]+", "", name).casefold()
