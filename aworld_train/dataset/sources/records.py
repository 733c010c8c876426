"""From the fields of a record to a task, the same for every kind of file.

The build's options (``--scorer``, ``--answer-schema``) take precedence over the record's values, and these over the
defaults of the source.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import repeat
from pathlib import PurePath
from typing import NamedTuple

from aworld_train.dataset.names import check_schema_name, check_scorer_name
from aworld_train.dataset.prompts import prompt_text, with_attachments
from aworld_train.dataset.prompts.choices import fill_template, question_with_choices
from aworld_train.dataset.sources.answers import right_answers
from aworld_train.dataset.sources.choices import CHOICE_KEYS, choices_of, right_choice
from aworld_train.dataset.sources.ids import IdMemory
from aworld_train.dataset.sources.options import SourceOptions
from aworld_train.dataset.sources.values import UnusableRecord, label_text, name_list, read_query
from aworld_train.dataset.tasks import LEVEL_NOT_SELECTED, Dropped, Shared, Task, TaskKind, TaskTable
from aworld_train.errors import DatasetError

Record = tuple[int, object, Mapping[str, object] | str]
"""A record that was read: its line, from 1; its content; its values by field, or the reason why it has none."""

DEFAULT_SCORER = "exact"
DEFAULT_SCHEMA = "answer"

_QUESTION = TaskKind.question


class _SharedFields(NamedTuple):
    """The fields that few records set; the others have the defaults of the source."""

    scorer: str
    answer_schema: str
    data_source: str
    system: str = ""
    subject: str = ""


_RARE_FIELDS = frozenset(_SharedFields._fields)

IN_TABLES = frozenset({"id", "query", "answer", "ground_truths", "level", "tags", "attachments"})
"""Records that set only these fields can be read many at once."""


class RecordReader:
    """Makes tasks of records, and remembers their ids: two tasks with other content must not have the same id."""

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
        """Validation metrics are grouped by ``data_source``; empty for the file's name."""
        self._options = options
        self._ability = ability
        self._system = system
        self._compose = compose
        self._levels = frozenset(options.levels)
        self._folder = options.attachments_at.rstrip("/")
        self._choices_prompt = options.choices_prompt or prompt_text("choices.txt")
        self._defaults = _SharedFields(
            scorer=options.scorer or scorer,
            answer_schema=options.answer_schema or DEFAULT_SCHEMA,
            data_source=data_source,
        )
        self._ids = IdMemory()

    def tasks(self, records: Iterator[Record], file: str) -> Iterator[Task | Dropped]:
        for line, raw, fields in records:
            if isinstance(fields, str):
                yield Dropped(file, line, printable(raw), fields)
                continue
            try:
                yield self.task(fields, file, line)
            except UnusableRecord as reason:
                yield Dropped(file, line, printable(raw), str(reason))

    def task(self, fields: Mapping[str, object], file: str, line: int) -> Task:
        get = fields.get
        query = read_query(get("prompt") or get("query"))
        question, system, images, earlier = query
        if uris := get("image_uris"):
            images = tuple(name_list(uris, "images"))
        level = label_text(get("level"), "level")
        if self._levels and level not in self._levels:
            raise UnusableRecord(LEVEL_NOT_SELECTED)
        shared = (
            self._defaults if _RARE_FIELDS.isdisjoint(fields) else self._shared_fields(fields, file, line)
        )
        subject = question
        answer_value, others = get("answer"), get("ground_truths")
        if not CHOICE_KEYS.isdisjoint(fields) and (choices := choices_of(fields)):
            template = self._choices_prompt
            choice = right_choice(
                choices, others if answer_value is None else answer_value, f"{file}, line {line}"
            )
            answer_value, others = choice.label if "{label}" in template else choice.text, None
            subject = question_with_choices(question, choices) if "{choice}" in template else question
            question = fill_template(template, question, choices)
        answer, ground_truths = right_answers(answer_value, others, structured=_reads_json(shared.scorer))
        system = shared.system or system or self._system
        if self._options.system is not None:
            system = self._options.system
        paths: tuple[str, ...] = ()
        if names := get("attachments"):
            paths = self._paths(names)
        message = self._compose(question, paths)
        id = label_text(get("id"), "id")
        if id and self._ids.is_conflict(
            id, hash((message, ground_truths or answer, system, shared.scorer, earlier))
        ):
            raise UnusableRecord("id of another row with other content")
        return Task(
            data_source=shared.data_source or _stem(file),
            ability=self._ability,
            kind=_QUESTION,
            subject=shared.subject or query.after_earlier(subject),
            message=message,
            answer=answer,
            ground_truths=ground_truths,
            scorer=shared.scorer,
            answer_schema=shared.answer_schema,
            id=id,
            system=system,
            level=level,
            tags=tuple(name_list(get("tags"), "tags")),
            attachments=paths,
            images=images,
            earlier=earlier,
            file=file,
            line=line,
        )

    def table(
        self, columns: Mapping[str, Sequence[object]], lines: Sequence[int], file: str
    ) -> TaskTable | None:
        """The tasks of records that set only fields of `IN_TABLES`; None where they have to be read one by one."""
        defaults, system_option = self._defaults, self._options.system
        missing: Sequence[object] = [None] * len(lines)
        structured = _reads_json(defaults.scorer)
        if self._levels:
            return None
        try:
            queries = [read_query(value) for value in columns.get("query", missing)]
            levels = [label_text(value, "level") for value in columns.get("level", missing)]
            tags = [name_list(value, "tags") for value in columns.get("tags", missing)]
            answers = [
                right_answers(answer, others, structured=structured)
                for answer, others in zip(
                    columns.get("answer", missing), columns.get("ground_truths", missing), strict=True
                )
            ]
            paths = [self._paths(value) if value else () for value in columns.get("attachments", missing)]
            ids = [label_text(value, "id") for value in columns.get("id", missing)]
            systems = [
                (query.system or self._system) if system_option is None else system_option
                for query in queries
            ]
            messages = [
                self._compose(query.question, names) for query, names in zip(queries, paths, strict=True)
            ]
            all_answers = [several or answer for answer, several in answers]
            earlier = [query.earlier for query in queries]
            contents = map(hash, zip(messages, all_answers, systems, repeat(defaults.scorer), earlier))
            if self._ids.has_conflict(ids, contents):
                return None
        except UnusableRecord:
            return None
        shared = Shared(
            is_question=True,
            data_source=defaults.data_source or _stem(file),
            ability=self._ability,
            scorer=defaults.scorer,
            answer_schema=defaults.answer_schema,
            file=file,
        )
        return TaskTable(
            shared=[shared] * len(lines),
            subject=[query.after_earlier(query.question) for query in queries],
            message=messages,
            answer=[answer for answer, _ in answers],
            ground_truths=[several for _, several in answers],
            id=ids,
            system=systems,
            level=levels,
            tags=tags,
            attachments=paths,
            images=[query.images for query in queries],
            earlier=earlier,
            line=lines,
        )

    def _shared_fields(self, fields: Mapping[str, object], file: str, line: int) -> "_SharedFields":
        defaults = self._defaults
        present = {name: label_text(fields.get(name), name) for name in _RARE_FIELDS}
        shared = defaults._replace(**{name: text for name, text in present.items() if text})
        if self._options.scorer is not None:
            shared = shared._replace(scorer=defaults.scorer)
        if self._options.answer_schema is not None:
            shared = shared._replace(answer_schema=defaults.answer_schema)
        try:
            check_scorer_name(shared.scorer)
            check_schema_name(shared.answer_schema)
        except DatasetError as error:
            raise DatasetError(
                f"{file}, line {line}: {error.message} Correct it there, or give all rows one with --scorer and "
                "--answer-schema."
            ) from error
        return shared

    def _paths(self, names: object) -> tuple[str, ...]:
        return tuple(
            [
                name if name.startswith("/") else f"{self._folder}/{name}"
                for name in name_list(names, "attachments")
            ]
        )


def _reads_json(scorer: str) -> bool:
    return scorer == "code_tests" or ":" in scorer


def printable(raw: object) -> str:
    """A record as text that can be written, so that people can find and correct it."""
    if isinstance(raw, bytes):
        return raw.decode("utf-8", errors="replace").strip()
    text = raw if isinstance(raw, str) else json.dumps(raw, ensure_ascii=False, default=str)
    return text.encode("utf-8", errors="replace").decode()


@cache
def _stem(file: str) -> str:
    return PurePath(file).name.split(".")[0]
