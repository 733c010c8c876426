"""The attempts of an evaluation as a Parquet file: one row an attempt, with the columns of its task.

So that any figure can be computed again, for example with DuckDB::

    SELECT level, avg(score) FROM (SELECT task, level, avg(score) AS score FROM 'results.parquet' GROUP BY ALL)
    GROUP BY level
"""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow
from pyarrow import parquet

from aworld_train.atomic import write_bytes
from aworld_train.evaluation.results import Evaluation, TaskAttempt

NAME = "results.parquet"
_TEXT, _INTEGER, _NUMBER = pyarrow.string(), pyarrow.int64(), pyarrow.float64()
_COLUMNS = (
    ("evaluation", _TEXT, "The name of the evaluation's folder."),
    ("model", _TEXT, "The model's name."),
    ("task", _TEXT, "The task's id, the same in every evaluation."),
    ("index", _INTEGER, "The task's number in its dataset."),
    ("name", _TEXT, "The task's id in its benchmark, or empty."),
    ("source", _TEXT, "The task's data source."),
    ("level", _TEXT, "The task's level, or empty."),
    ("tags", pyarrow.list_(_TEXT), "The task's other labels."),
    ("question", _TEXT, "The text of the task's user messages."),
    ("correct_answer", _TEXT, "The right answer."),
    ("attempt", _INTEGER, "The attempt's number, from 0."),
    ("episode", _TEXT, "The attempt's episode in the store."),
    ("seed", _INTEGER, "Its seed; null where it was greedy."),
    ("score", _NUMBER, "From 0 to 1; null for an error."),
    ("outcome", _TEXT, "How it ended."),
    ("cause", _TEXT, "Why it failed; null if it did not."),
    ("answer", _TEXT, "The answer that the scorer found."),
    ("scorer", _TEXT, "What scored it; empty for an error."),
    ("unscored", _TEXT, "Why its answer has no score, or empty."),
    ("turns", _INTEGER, "Model calls."),
    ("tool_calls", _INTEGER, "Tool calls."),
    ("tool_errors", _INTEGER, "Tool calls that returned an error."),
    ("prompt_tokens", _INTEGER, "Tokens of all its prompts."),
    ("sampled_tokens", _INTEGER, "Tokens that the model wrote."),
    ("began", _NUMBER, "Unix time, seconds."),
    ("seconds", _NUMBER, "Its duration."),
    ("model_seconds", _NUMBER, "How much of it the model took."),
    ("tool_seconds", _NUMBER, "How much of it tools took."),
    ("cost", _NUMBER, "Its price; null without prices."),
    ("parts", pyarrow.map_(_TEXT, _NUMBER), "Parts of the score."),
    ("suspicions", pyarrow.list_(_TEXT), "Signs of reward hacking."),
    (
        "faults",
        pyarrow.map_(_TEXT, _INTEGER),
        "Requests to the endpoint that failed and were sent again, by kind.",
    ),
)
_NULLABLE = ("seed", "score", "cause", "answer", "cost")
SCHEMA = pyarrow.schema(
    [pyarrow.field(name, kind, name in _NULLABLE, {"doc": doc}) for name, kind, doc in _COLUMNS]
)
"""The columns; each field's metadata has a ``doc``."""


def write_table(evaluation: Evaluation, file: Path) -> None:
    """Write the attempts, in the order of the tasks; the file is replaced as a whole."""
    content = pyarrow.BufferOutputStream()
    table = pyarrow.Table.from_pylist(list(_rows(evaluation)), SCHEMA)
    parquet.write_table(table, content, compression="zstd")
    write_bytes(file, content.getvalue().to_pybytes())


def _rows(evaluation: Evaluation) -> Iterator[dict[str, Any]]:
    same = {"evaluation": evaluation.name, "model": str(evaluation.settings.get("model") or "")}
    for task in evaluation.tasks.values():
        of_task = {name: value for name, value in asdict(task).items() if name not in ("id", "scorer")}
        for attempt in evaluation.attempts_by_task.get(task.id, ()):
            row = same | of_task | _attempt_row(attempt)
            yield {name: _writable(value) for name, value in row.items()}


def _attempt_row(attempt: TaskAttempt) -> dict[str, Any]:
    key, figures = attempt.key, attempt.figures
    return {
        "episode": key.id,
        "task": key.task,
        "attempt": key.attempt,
        "began": key.began,
        "seed": figures.seed,
        "score": attempt.score,
        "outcome": figures.outcome or "",
        "cause": figures.cause,
        "answer": figures.extracted,
        "scorer": attempt.scorer,
        "unscored": attempt.unscored,
        "turns": figures.turns or 0,
        "tool_calls": figures.tool_calls or 0,
        "tool_errors": figures.tool_errors or 0,
        "prompt_tokens": figures.given_tokens or 0,
        "sampled_tokens": figures.sampled_tokens or 0,
        "seconds": figures.seconds or 0.0,
        "model_seconds": figures.generate_seconds or 0.0,
        "tool_seconds": figures.tool_seconds or 0.0,
        "cost": attempt.cost,
        "parts": list(attempt.parts.items()),
        "suspicions": figures.suspicions or [],
        "faults": list((figures.faults or {}).items()),
    }


def _writable(value: Any) -> Any:
    """A value without halves of surrogate pairs, which models write and UTF-8 does not have."""
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    if isinstance(value, list | tuple):
        return type(value)(map(_writable, value))
    return value
