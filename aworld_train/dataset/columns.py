"""Tasks as columns: how a build holds them between the source and the rows.

Most of a task's fields take few values (which source, scorer, level, file), so these are kept once, as a
`Family`, and each task has its family's number. The digest gives the order and says what is the same task: it
is sha256 of the seed and the task's key.
"""

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa

from aworld_train.dataset.tasks import Task, TaskKind
from aworld_train.errors import DatasetError

FLAT = pa.schema(
    [
        ("digest", pa.binary(32)),
        ("family", pa.int32()),
        ("subject", pa.string()),
        ("message", pa.string()),
        ("answer", pa.string()),
        ("id", pa.string()),
        ("line", pa.int64()),
        ("attachments", pa.list_(pa.field("element", pa.string()))),
    ]
)
TEXTS = ("subject", "message", "answer", "id")
FAMILY_TEXTS = ("data_source", "ability", "scorer", "answer_schema", "system", "level", "file")

_ID_CHARS = 16


class Family(NamedTuple):
    """What tasks have in common with many others.

    Attributes:
        source: Position of the source among those of the build.
        is_question: Whether the tasks ask a question rather than for an expression's value.
    """

    source: int
    is_question: bool
    data_source: str
    ability: str
    scorer: str
    answer_schema: str
    system: str
    level: str
    file: str


class Families:
    """The distinct families of a build, numbered in the order they came."""

    def __init__(self) -> None:
        self.numbers: dict[Family, int] = {}

    def __len__(self) -> int:
        return len(self.numbers)

    def listed(self) -> list[Family]:
        return list(self.numbers)

    def number(self, source: int, task: Task) -> int:
        family = Family(
            source,
            task.kind is TaskKind.question,
            task.data_source,
            task.ability,
            task.scorer,
            task.answer_schema,
            task.system,
            task.level,
            task.file,
        )
        return self.numbers.setdefault(family, len(self.numbers))


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
    except (TypeError, AttributeError, UnicodeEncodeError, pa.ArrowException) as error:
        _name_fault(tasks)
        raise DatasetError(f"The source gave tasks that cannot be kept: {error}.") from error


def _batch(tasks: Sequence[Task], source: int, families: Families, seed: int) -> pa.RecordBatch:
    keys = [task.key for task in tasks]
    digests = b"".join([digest(key, seed) for key in keys])
    return pa.RecordBatch.from_arrays(
        [
            pa.FixedSizeBinaryArray.from_buffers(pa.binary(32), len(tasks), [None, pa.py_buffer(digests)]),
            pa.array([families.number(source, task) for task in tasks], pa.int32()),
            pa.array([task.subject for task in tasks], pa.string()),
            pa.array([task.message for task in tasks], pa.string()),
            pa.array([task.answer for task in tasks], pa.string()),
            pa.array([task.id or _named_by(key) for task, key in zip(tasks, keys, strict=True)], pa.string()),
            pa.array([task.line for task in tasks], pa.int64()),
            pa.array([task.attachments or None for task in tasks], FLAT.field("attachments").type),
        ],
        schema=FLAT,
    )


def _named_by(key: str) -> str:
    """The id of a task that its input does not name: the same in every build, whatever the seed."""
    return hashlib.sha256(key.encode()).hexdigest()[:_ID_CHARS]


def _name_fault(tasks: Sequence[Task]) -> None:
    for task in tasks:
        for name in (*TEXTS, *FAMILY_TEXTS):
            value = getattr(task, name)
            where = f"{task.file or 'a made-up task'}, line {task.line}"
            if not isinstance(value, str):
                raise DatasetError(
                    f"The source gave a task ({where}) whose {name} is {type(value).__name__} {value!r}, not text."
                )
            if any("\ud800" <= character <= "\udfff" for character in value):
                raise DatasetError(
                    f"The source gave a task ({where}) whose {name} is not valid Unicode. It must yield such "
                    "input as Dropped."
                )
