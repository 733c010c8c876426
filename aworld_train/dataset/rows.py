"""Tasks become rows of `SCHEMA`, and rows a parquet file; nothing is written that training could not use."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from aworld_train.dataset.check import check_rows
from aworld_train.dataset.schema import SCHEMA
from aworld_train.dataset.tasks import Task, TaskKind

AGENT_NAME = "mcp_agent"


def row(task: Task, index: int, split: str) -> dict[str, object]:
    """One training row; ``extra_info`` has the same fields in every row, those that do not apply are null."""
    return {
        "data_source": task.data_source,
        "agent_name": AGENT_NAME,
        "prompt": [{"role": "user", "content": task.message}],
        "ability": task.ability,
        "reward_model": {"style": "rule", "ground_truth": task.answer},
        "extra_info": {
            "index": index,
            "split": split,
            "file": task.file,
            "line": task.line,
            "expression": task.subject if task.kind is TaskKind.expression else None,
            "question": task.subject if task.kind is TaskKind.question else None,
        },
    }


def write_rows(path: Path, rows: Sequence[Mapping[str, object]]) -> None:
    """Write rows as zstd parquet; the same rows give the same bytes.

    Raises:
        DatasetError: There are no rows, or one could not be trained on.
    """
    table = pa.Table.from_pylist(list(rows), schema=SCHEMA)
    check_rows(table.to_batches(), str(path))
    pq.write_table(table, path, compression="zstd")
