"""What a source yields: a task that can be trained on, or a piece of input that was left out and why.

A source never skips anything silently: everything it looked at comes out as one or the other, so that the
build can hold ``kept + dropped == seen``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Self

import msgspec

NOT_ASKED_FOR = "level was not asked for"
"""The reason of what was left out as asked, with nothing wrong in it."""


class TaskKind(Enum):
    """What a task asks for, and so what makes two tasks the same."""

    expression = "expression"
    question = "question"


class Task(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One thing to ask, with its answer and where it came from.

    Attributes:
        data_source: Name that verl groups validation metrics by.
        ability: Broad field of the task.
        kind: Whether ``subject`` is an expression or a question.
        subject: The normalised expression, or the question as it is written.
        message: What the user says to the agent.
        answer: The ground truth.
        scorer: Name of the scorer that compares an answer with it.
        answer_schema: How the answer is taken out of what the agent says.
        id: What the input itself calls the task; empty where it has no name for it.
        system: System prompt that comes before ``message``; empty for none.
        level: Stratum the task belongs to, such as GAIA's level; every split gets its share of each. Empty for none.
        attachments: Paths of the task's files inside the tool environment.
        file: Base name of the input file; empty where the task was generated.
        line: Line in that file, from 1; 0 where the task was generated.
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
    attachments: tuple[str, ...] = ()
    file: str = ""
    line: int = 0

    @property
    def key(self) -> str:
        """Equal for tasks that are the same task."""
        return self.subject if self.kind is TaskKind.expression else question_key(self.subject)


class Shared(NamedTuple):
    """What a task has in common with most others of its source, by the names that `Task` has for it."""

    is_question: bool
    data_source: str
    ability: str
    scorer: str
    answer_schema: str
    file: str


@dataclass(frozen=True, kw_only=True)
class TaskTable:
    """Many tasks, column by column, each [tasks]: a source that reads many rows at once need not make each a `Task`."""

    shared: Sequence[Shared]
    subjects: Sequence[str]
    messages: Sequence[str]
    answers: Sequence[str]
    ids: Sequence[str]
    systems: Sequence[str]
    levels: Sequence[str]
    attachments: Sequence[Sequence[str]]
    lines: Sequence[int]

    @classmethod
    def of(cls, tasks: Sequence[Task]) -> Self:
        """The same tasks as a table."""
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
            subjects=[task.subject for task in tasks],
            messages=[task.message for task in tasks],
            answers=[task.answer for task in tasks],
            ids=[task.id for task in tasks],
            systems=[task.system for task in tasks],
            levels=[task.level for task in tasks],
            attachments=[task.attachments for task in tasks],
            lines=[task.line for task in tasks],
        )

    def __len__(self) -> int:
        return len(self.subjects)


class Dropped(msgspec.Struct, frozen=True, gc=False):
    """One piece of input that did not become a task."""

    file: str
    line: int
    text: str
    reason: str


def question_key(question: str) -> str:
    """A question without its case and spacing."""
    folded = question.casefold()
    # Printable text has no whitespace but the plain space; most questions need no taking apart then.
    if "  " not in folded and folded.isprintable():
        return folded.strip(" ")
    return " ".join(folded.split())
