"""The task of evaluating one expression, and how its answer is extracted and scored."""

from typing import TypedDict

from aworld_train.dataset.sources.options import SourceOptions
from aworld_train.dataset.tasks import Task, TaskKind


class ScoringFields(TypedDict):
    scorer: str
    answer_schema: str
    system: str


def scoring_fields(options: SourceOptions, scorer: str) -> ScoringFields:
    """The scoring fields of the options; by default ``scorer`` compares what is in the answer tags."""
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
    scoring: ScoringFields = BY_NUMBER,
    file: str = "",
    line: int = 0,
) -> Task:
    return Task(
        data_source=data_source,
        ability="arithmetic",
        kind=TaskKind.expression,
        subject=expression,
        message=f"What is {expression}?",
        answer=answer,
        file=file,
        line=line,
        **scoring,
    )
