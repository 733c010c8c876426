"""The attempts of an evaluation as a Parquet file: one row an attempt, with the columns of its task.

So that any figure can be computed again, for example with DuckDB::

    SELECT level, avg(score) FROM (SELECT task, level, avg(score) AS score FROM 'results.parquet' GROUP BY ALL)
    GROUP BY level
"""

import os
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow
from pyarrow import parquet

from aworld_train.evaluation.results import Evaluation

NAME = "results.parquet"
SCHEMA = pyarrow.schema(
    [
        pyarrow.field("evaluation", pyarrow.string(), False, {"doc": "The name of the evaluation's folder."}),
        pyarrow.field("model", pyarrow.string(), False, {"doc": "The model's name."}),
        pyarrow.field(
            "task", pyarrow.string(), False, {"doc": "The task's id, the same in every evaluation."}
        ),
        pyarrow.field("index", pyarrow.int64(), False, {"doc": "The task's number in its dataset."}),
        pyarrow.field("name", pyarrow.string(), False, {"doc": "The task's id in its benchmark, or empty."}),
        pyarrow.field("source", pyarrow.string(), False, {"doc": "The task's data source."}),
        pyarrow.field("level", pyarrow.string(), False, {"doc": "The task's level, or empty."}),
        pyarrow.field("tags", pyarrow.list_(pyarrow.string()), False, {"doc": "The task's other labels."}),
        pyarrow.field("question", pyarrow.string(), False, {"doc": "The text of the task's user messages."}),
        pyarrow.field("correct_answer", pyarrow.string(), False, {"doc": "The right answer."}),
        pyarrow.field("attempt", pyarrow.int64(), False, {"doc": "The attempt's number, from 0."}),
        pyarrow.field("episode", pyarrow.string(), False, {"doc": "The attempt's episode in the store."}),
        pyarrow.field("seed", pyarrow.int64(), True, {"doc": "Its seed; null where it was greedy."}),
        pyarrow.field("score", pyarrow.float64(), True, {"doc": "From 0 to 1; null for an error."}),
        pyarrow.field("outcome", pyarrow.string(), False, {"doc": "How it ended."}),
        pyarrow.field("cause", pyarrow.string(), True, {"doc": "Why it failed; null if it did not."}),
        pyarrow.field("answer", pyarrow.string(), True, {"doc": "The answer that the scorer found."}),
        pyarrow.field("scorer", pyarrow.string(), False, {"doc": "What scored it; empty for an error."}),
        pyarrow.field("unscored", pyarrow.string(), False, {"doc": "Why its answer has no score, or empty."}),
        pyarrow.field("turns", pyarrow.int64(), False, {"doc": "Model calls."}),
        pyarrow.field("tool_calls", pyarrow.int64(), False, {"doc": "Tool calls."}),
        pyarrow.field("tool_errors", pyarrow.int64(), False, {"doc": "Tool calls that returned an error."}),
        pyarrow.field("prompt_tokens", pyarrow.int64(), False, {"doc": "Tokens of all its prompts."}),
        pyarrow.field("sampled_tokens", pyarrow.int64(), False, {"doc": "Tokens that the model wrote."}),
        pyarrow.field("began", pyarrow.float64(), False, {"doc": "Unix time, seconds."}),
        pyarrow.field("seconds", pyarrow.float64(), False, {"doc": "Its duration."}),
        pyarrow.field("model_seconds", pyarrow.float64(), False, {"doc": "How much of it the model took."}),
        pyarrow.field("tool_seconds", pyarrow.float64(), False, {"doc": "How much of it tools took."}),
        pyarrow.field("cost", pyarrow.float64(), True, {"doc": "Its price; null without prices."}),
        pyarrow.field(
            "parts", pyarrow.map_(pyarrow.string(), pyarrow.float64()), False, {"doc": "Parts of the score."}
        ),
        pyarrow.field(
            "suspicions", pyarrow.list_(pyarrow.string()), False, {"doc": "Signs of reward hacking."}
        ),
        pyarrow.field(
            "faults",
            pyarrow.map_(pyarrow.string(), pyarrow.int64()),
            False,
            {"doc": "Requests to the endpoint that failed and were sent again, by kind."},
        ),
    ]
)
"""The columns; each field's metadata has a ``doc``."""


def write_table(evaluation: Evaluation, file: Path) -> None:
    """Write the attempts, in the order of the tasks; the file is replaced as a whole."""
    table = pyarrow.Table.from_pylist(list(_rows(evaluation)), SCHEMA)
    descriptor, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    os.close(descriptor)
    temporary = Path(name)
    try:
        parquet.write_table(table, temporary, compression="zstd")
        temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)


def _rows(evaluation: Evaluation) -> Iterator[dict[str, Any]]:
    same = {"evaluation": evaluation.name, "model": str(evaluation.settings.get("model") or "")}
    for task in evaluation.tasks.values():
        of_task = {name: value for name, value in asdict(task).items() if name not in ("id", "scorer")}
        for attempt in evaluation.attempts_by_task.get(task.id, ()):
            row = asdict(attempt)
            row["attempt"] = row.pop("number")
            row["parts"], row["faults"] = list(attempt.parts.items()), list(attempt.faults.items())
            yield {name: _writable(value) for name, value in (same | of_task | row).items()}


def _writable(value: Any) -> Any:
    """A value without halves of surrogate pairs, which models write and UTF-8 does not have."""
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    if isinstance(value, list | tuple):
        return type(value)(map(_writable, value))
    return value
