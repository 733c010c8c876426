"""Tasks as columns: how a build holds them between the source and the rows.

Most of a task's fields take few values (which source, scorer, level, file), so these are kept once, as a
`Family`, and each task has its family's number. So is what stands before the question in every message, and the
question itself is held once, not again within the message. The digest gives the order and says what is the same
task: it is sha256 of the seed and the task's key.
"""

import hashlib
from collections.abc import Sequence
from typing import NamedTuple, cast

import pyarrow as pa

from aworld_train.dataset.arrays import binaries, lists_of_texts, numbers, texts
from aworld_train.dataset.tasks import Task, TaskKind, question_key
from aworld_train.errors import DatasetError

DIGEST_BYTES = 32
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
        ("attachments", pa.list_(pa.field("element", pa.string()))),
    ]
)

_TEXTS = (
    *("data_source", "ability", "subject", "message", "answer"),
    *("scorer", "answer_schema", "id", "system", "level", "file"),
)
_FIRST_TEXT = 4
_QUESTION = TaskKind.question
_ID_CHARS = 16
_MOST_SHARED = 256
"""How many different system prompts, and beginnings of messages, are held once; more belong to their tasks."""


_Fields = tuple[int, bool, bool, bool, str, str, str, str, str, str, str, str]
"""Those of a `Family`, which take less time to make than a family."""


class Family(NamedTuple):
    """What tasks have in common with many others.

    Attributes:
        source: Position of the source among those of the build.
        is_question: Whether the tasks ask a question rather than for an expression's value.
        has_system: Whether there is a system prompt, be it here or with the task.
        has_subject: Whether the subject stands in the message, after ``before``.
    """

    source: int
    is_question: bool
    has_system: bool
    has_subject: bool
    data_source: str
    ability: str
    scorer: str
    answer_schema: str
    system: str
    before: str
    level: str
    file: str


class Families:
    """The distinct families of a build, numbered in the order they came."""

    def __init__(self) -> None:
        self.numbers: dict[_Fields, int] = {}
        self._systems: set[str] = set()
        self._befores: set[str] = set()

    def __len__(self) -> int:
        return len(self.numbers)

    def listed(self) -> list[Family]:
        return [Family(*family) for family in self.numbers]

    def place(self, source: int, tasks: Sequence[Task]) -> tuple[list[int], list[str], list[str]]:
        """For each task the number of its family, and what is left of its message and of its system prompt."""
        found: list[int] = []
        afters: list[str] = []
        systems: list[str] = []
        known, befores, shared = self.numbers, self._befores, self._systems
        for task in tasks:
            message, subject, system, own_system = task.message, task.subject, task.system, ""
            at = message.find(subject)
            before = message[:at] if at > 0 else ""
            if at < 0 or not _shared(before, befores):
                at, before, after = -1, "", message
            else:
                after = message[at + len(subject) :]
            has_system = bool(system)
            if not _shared(system, shared):
                system, own_system = "", system
            family = (
                source,
                task.kind is _QUESTION,
                has_system,
                at >= 0,
                task.data_source,
                task.ability,
                task.scorer,
                task.answer_schema,
                system,
                before,
                task.level,
                task.file,
            )
            number = known.get(family)
            if number is None:
                "".join(cast(tuple[str, ...], family[_FIRST_TEXT:])).encode()  # raises for what is no text
                number = known[family] = len(known)
            found.append(number)
            afters.append(after)
            systems.append(own_system)
        return found, afters, systems


def digest(key: str, seed: int) -> bytes:
    """What orders a task and is equal for equal tasks only."""
    return hashlib.sha256(f"{seed}\0{key}".encode()).digest()


def to_columns(tasks: Sequence[Task], source: int, families: Families, seed: int) -> pa.RecordBatch:
    """The tasks as a batch of `FLAT`.

    Raises:
        DatasetError: A task of one's own source has something other than text where text belongs.
    """
    try:
        return _batch(tasks, source, families, seed)
    except (TypeError, ValueError, AttributeError) as error:
        _name_fault(tasks)
        raise DatasetError(f"The source gave tasks that cannot be kept: {error}.") from error


def _batch(tasks: Sequence[Task], source: int, families: Families, seed: int) -> pa.RecordBatch:
    keys = [task.subject if task.kind is not _QUESTION else question_key(task.subject) for task in tasks]
    found, afters, systems = families.place(source, tasks)
    return pa.RecordBatch.from_arrays(
        [
            binaries([digest(key, seed) for key in keys], DIGEST_BYTES),
            numbers(found, pa.int32()),
            texts([task.subject for task in tasks]),
            texts(afters),
            texts(systems),
            texts([task.answer for task in tasks]),
            texts([task.id or _named_by(key) for task, key in zip(tasks, keys, strict=True)]),
            numbers([task.line for task in tasks]),
            lists_of_texts([task.attachments for task in tasks], FLAT.field("attachments").type),
        ],
        schema=FLAT,
    )


def _shared(text: str, known: set[str]) -> bool:
    """Whether the text is one of the few that are held once; it becomes one while there are not many."""
    if not text or text in known:
        return True
    if len(known) >= _MOST_SHARED:
        return False
    known.add(text)
    return True


def _named_by(key: str) -> str:
    """The id of a task that its input does not name: the same in every build, whatever the seed."""
    return hashlib.sha256(key.encode()).hexdigest()[:_ID_CHARS]


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
