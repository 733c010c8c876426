"""From the fields of a row to a task, the same for every kind of file.

What the build was told (``--scorer``, ``--answer-schema``) goes before what the row says, and that before the
source's own way.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import repeat
from pathlib import PurePath
from typing import NamedTuple

from aworld_train.dataset.names import check_schema_name, check_scorer_name
from aworld_train.dataset.prompts import with_attachments
from aworld_train.dataset.sources.options import SourceOptions
from aworld_train.dataset.sources.values import (
    UnusableRow,
    answer_text,
    file_names,
    label_text,
    question_text,
)
from aworld_train.dataset.tasks import NOT_ASKED_FOR, Dropped, Shared, Task, TaskKind, TaskTable
from aworld_train.errors import DatasetError

Row = tuple[int, object, Mapping[str, object] | str]
"""A row that was read: its line, from 1; what stands there; its values by field, or why it has none."""

DEFAULT_SCORER = "exact"
DEFAULT_SCHEMA = "answer"

_QUESTION = TaskKind.question


class _SharedFields(NamedTuple):
    """What few rows say of themselves, and goes without saying for the others."""

    scorer: str
    answer_schema: str
    data_source: str
    system: str = ""
    subject: str = ""


_SELDOM = frozenset(_SharedFields._fields)

IN_TABLES = frozenset({"id", "query", "answer", "level", "attachments"})
"""The fields of rows that can be read many at once."""


class RowReader:
    """Makes tasks of rows, and remembers their ids: an id stands for one task."""

    def __init__(
        self,
        options: SourceOptions,
        data_source: str = "",
        *,
        ability: str = "question answering",
        scorer: str = DEFAULT_SCORER,
        system: str = "",
        compose: Callable[[str, Sequence[str]], str] = with_attachments,
    ) -> None:
        """Args:
        options: What the build asks of the source.
        data_source: Name that verl groups validation metrics by, of rows that have none; empty for the file's.
        ability: Broad field of the tasks.
        scorer: Scorer of rows that name none.
        system: System prompt of rows that have none.
        compose: What the user says, from the question and the paths of its files.
        """
        self._options = options
        self._ability = ability
        self._system = system
        self._compose = compose
        self._levels = frozenset(options.levels)
        self._folder = options.attachments_at.rstrip("/")
        self._usual = _SharedFields(
            scorer=options.scorer or scorer,
            answer_schema=options.answer_schema or DEFAULT_SCHEMA,
            data_source=data_source,
        )
        self._contents: dict[int, int] = {}

    def tasks(self, rows: Iterator[Row], file: str) -> Iterator[Task | Dropped]:
        """One item per row.

        Args:
            rows: Rows as they are read.
            file: Base name of the input file.

        Raises:
            DatasetError: A row names a scorer or an answer schema that there is not.
        """
        for line, raw, fields in rows:
            if isinstance(fields, str):
                yield Dropped(file, line, shown(raw), fields)
                continue
            try:
                yield self.task(fields, file, line)
            except UnusableRow as reason:
                yield Dropped(file, line, shown(raw), str(reason))

    def task(self, fields: Mapping[str, object], file: str, line: int) -> Task:
        """The task of a row.

        Args:
            fields: The row's values by field name; those that it lacks may be left out.
            file: Base name of the input file.
            line: Line or row in it, from 1.

        Raises:
            Unusable: It does not become one.
            DatasetError: It names a scorer or an answer schema that there is not.
        """
        get = fields.get
        question, system = question_text(get("query"))
        level = label_text(get("level"), "level")
        if self._levels and level not in self._levels:
            raise UnusableRow(NOT_ASKED_FOR)
        said = self._usual if _SELDOM.isdisjoint(fields) else self._said(fields, file, line)
        answer = answer_text(get("answer"), structured=_is_structured(said.scorer))
        system = said.system or system or self._system
        if self._options.system is not None:
            system = self._options.system
        paths: tuple[str, ...] = ()
        if names := get("attachments"):
            paths = self._paths(names)
        message = self._compose(question, paths)
        id = label_text(get("id"), "id")
        if id:
            self._check_id(id, hash((message, answer, system, said.scorer)))
        return Task(
            data_source=said.data_source or _stem(file),
            ability=self._ability,
            kind=_QUESTION,
            subject=said.subject or question,
            message=message,
            answer=answer,
            scorer=said.scorer,
            answer_schema=said.answer_schema,
            id=id,
            system=system,
            level=level,
            attachments=paths,
            file=file,
            line=line,
        )

    def table(
        self, rows: Mapping[str, Sequence[object]], lines: Sequence[int], file: str
    ) -> TaskTable | None:
        """The tasks of rows that say only what most do; None where one of them is to be looked at by itself.

        Args:
            rows: The rows' values by field, each [rows]; those of `IN_TABLES` and no others.
            lines: Line or row of each in the file, from 1.
            file: Base name of the input file.
        """
        usual, asked_system = self._usual, self._options.system
        none: Sequence[object] = [None] * len(lines)
        structured = _is_structured(usual.scorer)
        if self._levels:
            return None
        try:
            asked = [question_text(value) for value in rows.get("query", none)]
            levels = [label_text(value, "level") for value in rows.get("level", none)]
            answers = [answer_text(value, structured=structured) for value in rows.get("answer", none)]
            paths = [self._paths(value) if value else () for value in rows.get("attachments", none)]
            ids = [label_text(value, "id") for value in rows.get("id", none)]
            systems = [
                (system or self._system) if asked_system is None else asked_system for _, system in asked
            ]
            messages = [
                self._compose(question, names) for (question, _), names in zip(asked, paths, strict=True)
            ]
            contents = map(hash, zip(messages, answers, systems, repeat(usual.scorer)))
            for id, content in zip(ids, contents, strict=True):
                if id:
                    self._check_id(id, content)
        except UnusableRow:
            return None
        shared = Shared(
            is_question=True,
            data_source=usual.data_source or _stem(file),
            ability=self._ability,
            scorer=usual.scorer,
            answer_schema=usual.answer_schema,
            file=file,
        )
        return TaskTable(
            shared=[shared] * len(lines),
            subjects=[question for question, _ in asked],
            messages=messages,
            answers=answers,
            ids=ids,
            systems=systems,
            levels=levels,
            attachments=paths,
            lines=lines,
        )

    def _said(self, fields: Mapping[str, object], file: str, line: int) -> "_SharedFields":
        usual = self._usual
        own = {name: label_text(fields.get(name), name) for name in _SELDOM}
        said = usual._replace(**{name: text for name, text in own.items() if text})
        if self._options.scorer is not None:
            said = said._replace(scorer=usual.scorer)
        if self._options.answer_schema is not None:
            said = said._replace(answer_schema=usual.answer_schema)
        try:
            check_scorer_name(said.scorer)
            check_schema_name(said.answer_schema)
        except DatasetError as error:
            raise DatasetError(
                f"{file}, line {line}: {error.message} Correct it there, or give all rows one with --scorer and "
                "--answer-schema."
            ) from error
        return said

    def _paths(self, names: object) -> tuple[str, ...]:
        return tuple(
            [name if name.startswith("/") else f"{self._folder}/{name}" for name in file_names(names)]
        )

    def _check_id(self, id: str, content: int) -> None:
        # Hashes, of 64 bits: what is kept of a row is then small, whatever its id.
        if self._contents.setdefault(hash(id), content) != content:
            raise UnusableRow("id of another row with other content")


def _is_structured(scorer: str) -> bool:
    """Whether a scorer reads JSON, or may do so."""
    return scorer == "code_tests" or ":" in scorer


def shown(raw: object) -> str:
    """A row as text that can be written, for people to find and mend it."""
    if isinstance(raw, bytes):
        return raw.decode("utf-8", errors="replace").strip()
    text = raw if isinstance(raw, str) else json.dumps(raw, ensure_ascii=False, default=str)
    return text.encode("utf-8", errors="replace").decode()


@cache
def _stem(file: str) -> str:
    return PurePath(file).name.split(".")[0]
