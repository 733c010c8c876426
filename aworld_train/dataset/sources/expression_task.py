"""The task of working out one expression, and how its answer is asked for and judged."""

from typing import TypedDict

from aworld_train.dataset.sources.options import SourceOptions
from aworld_train.dataset.tasks import Task, TaskKind


class ScoringFields(TypedDict):
    """How an answer is asked for and judged, as a `Task` has it."""

    scorer: str
    answer_schema: str
    system: str


def judged_as(options: SourceOptions, scorer: str) -> ScoringFields:
    """What the options say of judging, else ``scorer`` on what is in the answer tags."""
    return {
        "scorer": options.scorer or scorer,
        "answer_schema": options.answer_schema or "answer",
        "system": options.system or "",
    }


BY_NUMBER: ScoringFields = {"scorer": "number", "answer_schema": "answer", "system": ""}


def expression_task(
    data_source: str,
    expression: str,
    answer: str,
    judging: ScoringFields = BY_NUMBER,
    file: str = "",
    line: int = 0,
) -> Task:
    """The task of working out one normalised expression."""
    return Task(
        data_source=data_source,
        ability="arithmetic",
        kind=TaskKind.expression,
        subject=expression,
        message=f"What is {expression}?",
        answer=answer,
        file=file,
        line=line,
        **judging,
    )
