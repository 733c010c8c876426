"""What a source yields: tasks that can be trained on, and pieces of input that cannot become one, with the reason.

A source never skips anything silently: it yields one or the other for everything it reads, so that the numbers of a
build add up: ``kept + dropped == seen``.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import Enum
from typing import NamedTuple, Self

import msgspec

DIGEST_BYTES = 32
_ID_CHARS = 16

LEVEL_NOT_SELECTED = "level was not asked for"
"""The reason of records that are left out because of ``--level``, and are not faulty."""


class TaskKind(Enum):
    """What a task asks for; it decides when two tasks are the same."""

    expression = "expression"
    question = "question"


class Task(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One question or expression, with its answer and its origin in the input; empty texts stand for none.

    Validation metrics are grouped by ``data_source``. ``subject`` is the normalised expression, or the question as it
    is written; ``message`` the user's last message to the agent, and ``earlier`` the messages before it, without the
    system prompt, as JSON. ``ground_truths`` has all right answers, ``answer`` first; empty where that is the only one.
    Every split gets its share of each ``level``; evaluations are grouped by ``tags``. ``attachments`` are paths inside
    the tool environment, ``images`` the ``data:`` URIs of the images whose marks are in the texts (`episode.images`).
    ``line`` counts from 1 in ``file``; 0 where the task was generated.
    """

    data_source: str
    ability: str
    kind: TaskKind
    subject: str
    message: str
    answer: str
    scorer: str
    answer_schema: str
    id: str = ""
    system: str = ""
    level: str = ""
    tags: tuple[str, ...] = ()
    attachments: tuple[str, ...] = ()
    images: tuple[str, ...] = ()
    ground_truths: tuple[str, ...] = ()
    earlier: str = ""
    file: str = ""
    line: int = 0


class Shared(NamedTuple):
    """The fields of a `Task` that most tasks of its source have in common."""

    is_question: bool
    data_source: str
    ability: str
    scorer: str
    answer_schema: str
    file: str


@dataclass(frozen=True, kw_only=True)
class TaskTable:
    """Many tasks, column by column, each [tasks], from sources that read many records at once."""

    shared: Sequence[Shared]
    subject: Sequence[str]
    message: Sequence[str]
    answer: Sequence[str]
    ground_truths: Sequence[Sequence[str]]
    id: Sequence[str]
    system: Sequence[str]
    level: Sequence[str]
    tags: Sequence[Sequence[str]]
    attachments: Sequence[Sequence[str]]
    images: Sequence[Sequence[str]]
    earlier: Sequence[str]
    line: Sequence[int]

    @classmethod
    def of(cls, tasks: Sequence[Task]) -> Self:
        columns = [field.name for field in fields(cls) if field.name != "shared"]
        return cls(
            shared=[
                Shared(
                    task.kind is TaskKind.question,
                    task.data_source,
                    task.ability,
                    task.scorer,
                    task.answer_schema,
                    task.file,
                )
                for task in tasks
            ],
            **{name: [getattr(task, name) for task in tasks] for name in columns},
        )

    def __len__(self) -> int:
        return len(self.shared)


class Dropped(msgspec.Struct, frozen=True, gc=False):
    file: str
    line: int
    text: str
    reason: str


def question_key(question: str) -> str:
    folded = question.casefold()
    # The only whitespace in printable text is the plain space, so most questions need not be split.
    if "  " not in folded and folded.isprintable():
        return folded.strip(" ")
    return " ".join(folded.split())


def digest(key: bytes, seed: int) -> bytes:
    """The value that tasks are ordered by; it is equal for equal tasks only."""
    return hashlib.sha256(b"%d\0%b" % (seed, key)).digest()


def id_from_key(key: bytes) -> str:
    """The id of a task whose record has none: the same in every build, whatever the seed."""
    return hashlib.sha256(key).hexdigest()[:_ID_CHARS]
