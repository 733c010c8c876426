"""The ground truths of a dataset by task id."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aworld_train.errors import DatasetError, RewardError, suggestion
from aworld_train.evaluation.prediction_lines import read_id, read_lines, read_object, read_text_fields


@dataclass(frozen=True)
class GroundTruth:
    """The fields of a task that scoring needs; without ``scorer`` and ``answer_schema`` those of the run count."""

    answer: str
    scorer: str | None = None
    answer_schema: str | None = None
    query: str = ""
    info: Mapping[str, Any] = field(default_factory=dict)


def read_ground_truths(path: Path) -> dict[str, GroundTruth]:
    """The tasks of a dataset by id: a parquet file in this package's or VeRL's schema, or a file of JSON lines.

    In parquet the id is ``extra_info.id``, or ``extra_info.index`` where that is missing.
    """
    if path.is_dir():
        files = [str(file) for file in sorted(path.glob("*.parquet"))]
        raise DatasetError(
            f"{path} is a directory; name a file in it{', as ' if files else ''}{' or '.join(files)}."
        )
    ground_truths: dict[str, GroundTruth] = {}
    tasks = _parquet_tasks(path) if path.suffix == ".parquet" else _json_tasks(path)
    for location, name, ground_truth in tasks:
        if name in ground_truths:
            raise DatasetError(
                f"{location}: a task before it has the id {name!r} too. Give every task its own id."
            )
        ground_truths[name] = ground_truth
    if not ground_truths:
        raise DatasetError(f"{path} has no tasks.")
    return ground_truths


def find_ground_truth(ground_truths: Mapping[str, GroundTruth], name: str) -> GroundTruth:
    if name not in ground_truths:
        hint = suggestion(name, ground_truths) if len(ground_truths) < 10_000 else ""
        raise DatasetError(f"the dataset has no task with the id {name!r}.{hint}")
    return ground_truths[name]


def _json_tasks(path: Path) -> Iterator[tuple[str, str, GroundTruth]]:
    for location, _, text in read_lines(path):
        try:
            data = read_object(text)
            name = str(read_id(data))
            if data.get("answer") is None:
                raise RewardError("it has no 'answer'.")
            texts = read_text_fields(data)
        except RewardError as error:
            raise DatasetError(f"{location}: {error.message}") from error
        ground_truth = GroundTruth(
            texts["answer"], texts.get("scorer"), texts.get("answer_schema"), texts.get("query", ""), data
        )
        yield location, name, ground_truth


def _parquet_tasks(path: Path) -> Iterator[tuple[str, str, GroundTruth]]:
    from aworld_train.dataset.check import checked_batches

    batches = checked_batches(path, ["prompt", "reward_model", "extra_info"])
    rows = (row for batch in batches for row in batch.to_pylist())
    for number, row in enumerate(rows, 1):
        info = row["extra_info"] or {}
        name = info.get("id") or str(info.get("index"))
        query = "\n".join(m["content"] for m in row["prompt"] or () if m["role"] == "user")
        answer = (row["reward_model"] or {}).get("ground_truth")
        if answer is None:
            raise DatasetError(f"{path}, row {number}: it has no ground truth.")
        # Some files have an empty text in rows without a scorer or schema of their own.
        ground_truth = GroundTruth(
            answer, info.get("scorer") or None, info.get("answer_schema") or None, query, info
        )
        yield f"{path}, row {number}", name, ground_truth
