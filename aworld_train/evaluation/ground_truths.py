"""The tasks of a dataset by id, as far as scoring needs them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aworld_train.errors import DatasetError, RewardError, nearest
from aworld_train.evaluation.prediction_lines import id_of, lines_of, read_object, texts_of


@dataclass(frozen=True)
class GroundTruth:
    """A task as far as scoring needs it.

    Attributes:
        answer: The ground truth.
        scorer: None for the run's.
        answer_schema: None for the run's.
        query: What was asked.
        info: The row's ``extra_info``.
    """

    answer: str
    scorer: str | None = None
    answer_schema: str | None = None
    query: str = ""
    info: Mapping[str, Any] = field(default_factory=dict)


def read_ground_truths(path: Path) -> dict[str, GroundTruth]:
    """The tasks of a dataset by id: a parquet file of this package's or verl's, or a file of JSON lines.

    In parquet, the id is ``extra_info.id``, and ``extra_info.index`` where there is none.

    Raises:
        DatasetError: It cannot be read, or two tasks have the same id.
    """
    if path.is_dir():
        files = [str(file) for file in sorted(path.glob("*.parquet"))]
        raise DatasetError(
            f"{path} is a directory; name a file in it{', as ' if files else ''}{' or '.join(files)}."
        )
    found: dict[str, GroundTruth] = {}
    tasks = _parquet_tasks(path) if path.suffix == ".parquet" else _json_tasks(path)
    for place, name, truth in tasks:
        if name in found:
            raise DatasetError(
                f"{place}: a task before it has the id {name!r} too. Give every task its own id."
            )
        found[name] = truth
    if not found:
        raise DatasetError(f"{path} has no tasks.")
    return found


def find_ground_truth(truths: Mapping[str, GroundTruth], name: str) -> GroundTruth:
    """The task of this id.

    Raises:
        DatasetError: There is none.
    """
    if name not in truths:
        hint = nearest(name, tuple(truths)) if len(truths) < 10_000 else None
        meant = f" Did you mean {hint!r}?" if hint else ""
        raise DatasetError(f"the dataset has no task with the id {name!r}.{meant}")
    return truths[name]


def _json_tasks(path: Path) -> Iterator[tuple[str, str, GroundTruth]]:
    for place, _, text in lines_of(path):
        try:
            data = read_object(text)
            name = str(id_of(data))
            if data.get("answer") is None:
                raise RewardError("it has no 'answer'.")
            said = texts_of(data)
        except RewardError as error:
            raise DatasetError(f"{place}: {error.message}") from error
        truth = GroundTruth(
            said["answer"], said.get("scorer"), said.get("answer_schema"), said.get("query", ""), data
        )
        yield place, name, truth


def _parquet_tasks(path: Path) -> Iterator[tuple[str, str, GroundTruth]]:
    from aworld_train.dataset.check import open_parquet, read_batches
    from aworld_train.dataset.schema import check_schema

    number = 0
    with open_parquet(path) as file:
        check_schema(file.schema_arrow, str(path))
        for batch in read_batches(file, path, ["prompt", "reward_model", "extra_info"]):
            for row in batch.to_pylist():
                number += 1
                info = row["extra_info"] or {}
                name = info.get("id") or str(info.get("index"))
                query = "\n".join(m["content"] for m in row["prompt"] or () if m["role"] == "user")
                answer = (row["reward_model"] or {}).get("ground_truth")
                if answer is None:
                    raise DatasetError(f"{path}, row {number}: it has no ground truth.")
                # An empty text is what a row without its own has in some files.
                truth = GroundTruth(
                    answer, info.get("scorer") or None, info.get("answer_schema") or None, query, info
                )
                yield f"{path}, row {number}", name, truth
