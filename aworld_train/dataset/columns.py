"""Tasks as columns: how a build holds them between the source and the rows.

Most fields of a task have few different values; these are stored once, as a `Family`, which also has the text before
the question in the message. The digest decides the order, and equal digests mean the same task.
"""

from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa

from aworld_train.dataset.arrays import TEXT_LIST, binaries, lists_of_texts, numbers, texts
from aworld_train.dataset.schema import LISTS
from aworld_train.dataset.tasks import (
    DIGEST_BYTES,
    Shared,
    Task,
    TaskTable,
    digest,
    id_from_key,
    question_key,
)
from aworld_train.errors import DatasetError

FLAT = pa.schema(
    [
        ("digest", pa.binary(DIGEST_BYTES)),
        ("family", pa.int32()),
        # The message is the family's `before`, the subject where the family says so, and `after`.
        ("subject", pa.string()),
        ("after", pa.string()),
        # The system prompt is the family's, and this.
        ("system", pa.string()),
        ("answer", pa.string()),
        ("id", pa.string()),
        ("line", pa.int64()),
        *((name, TEXT_LIST) for name in ("attachments", *LISTS)),
        # The messages between the system prompt and the message, as JSON.
        ("earlier", pa.string()),
    ]
)

_TEXTS = (
    *("data_source", "ability", "subject", "message", "answer"),
    *("scorer", "answer_schema", "id", "system", "level", "earlier", "file"),
)
_MAX_SHARED = 256
"""How many different system prompts, and beginnings of messages, families have; others are stored with their task."""


class Family(NamedTuple):
    """What a task has in common with others; ``has_subject``: the message has the subject, after ``before``."""

    source: int
    shared: Shared
    has_system: bool
    has_subject: bool
    system: str
    before: str
    level: str


class FamilyIndex:
    def __init__(self) -> None:
        self.lists: set[str] = set()
        # A plain tuple is made faster than a `Family`.
        self._numbers: dict[tuple[int, Shared, bool, bool, str, str, str], int] = {}
        self._systems: set[str] = set()
        self._befores: set[str] = set()

    def __len__(self) -> int:
        return len(self._numbers)

    def listed(self) -> list[Family]:
        return [Family(*fields) for fields in self._numbers]

    def place(self, source: int, table: TaskTable) -> tuple[list[int], list[str], list[str]]:
        """For each task the number of its family, and the parts of message and system prompt that the family lacks."""
        family_numbers: list[int] = []
        afters: list[str] = []
        systems: list[str] = []
        numbers, shared_befores, shared_systems = self._numbers, self._befores, self._systems
        for shared, message, subject, system, level in zip(
            table.shared, table.message, table.subject, table.system, table.level, strict=True
        ):
            has_subject, has_system = True, bool(system)
            before = after = task_system = ""
            if message is not subject:
                at = message.find(subject)
                before = message[:at] if at > 0 else ""
                if at < 0 or not _is_shared(before, shared_befores):
                    has_subject, before, after = False, "", message
                else:
                    after = message[at + len(subject) :]
            if not _is_shared(system, shared_systems):
                system, task_system = "", system
            family_fields = (source, shared, has_system, has_subject, system, before, level)
            number = numbers.get(family_fields)
            if number is None:
                # Raises where a value is not a text.
                "".join((*shared[1:], system, before, level)).encode()
                number = numbers[family_fields] = len(numbers)
            family_numbers.append(number)
            afters.append(after)
            systems.append(task_system)
        return family_numbers, afters, systems


def to_columns(tasks: Sequence[Task], source: int, families: FamilyIndex, seed: int) -> pa.RecordBatch:
    try:
        return table_to_columns(TaskTable.of(tasks), source, families, seed)
    except (TypeError, ValueError, AttributeError) as error:
        _name_fault(tasks)
        raise DatasetError(f"The source gave tasks that cannot be kept: {error}.") from error


def table_to_columns(table: TaskTable, source: int, families: FamilyIndex, seed: int) -> pa.RecordBatch:
    family_numbers, afters, systems = families.place(source, table)
    families.lists.update(name for name in LISTS if any(getattr(table, name)))
    keys = [
        (question_key(subject) if shared.is_question else subject).encode()
        for subject, shared in zip(table.subject, table.shared, strict=True)
    ]
    return pa.RecordBatch.from_arrays(
        [
            binaries([digest(key, seed) for key in keys], DIGEST_BYTES),
            numbers(family_numbers, pa.int32()),
            texts(table.subject),
            texts(afters),
            texts(systems),
            texts(table.answer),
            texts([id or id_from_key(key) for id, key in zip(table.id, keys, strict=True)]),
            numbers(table.line),
            *(lists_of_texts(getattr(table, name)) for name in ("attachments", *LISTS)),
            texts(table.earlier),
        ],
        schema=FLAT,
    )


def _is_shared(text: str, known: set[str]) -> bool:
    if not text or text in known:
        return True
    if len(known) >= _MAX_SHARED:
        return False
    known.add(text)
    return True


def _name_fault(tasks: Sequence[Task]) -> None:
    for task in tasks:
        where = f"{task.file or 'a made-up task'}, line {task.line}"
        for name in _TEXTS:
            value = getattr(task, name)
            if not isinstance(value, str):
                raise DatasetError(
                    f"The source gave a task ({where}) whose {name} is {type(value).__name__} {value!r}, not text."
                )
            if any("\ud800" <= character <= "\udfff" for character in value):
                raise DatasetError(
                    f"The source gave a task ({where}) whose {name} is not valid Unicode. It must yield such "
                    "input as Dropped."
                )
