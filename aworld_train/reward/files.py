"""Scoring files of predictions: each line by itself, in the order of the file, many at a time and never all in memory.

A line is a JSON object with ``id`` and ``prediction`` (the final text, or messages with roles), and with ``answer``,
``scorer``, ``answer_schema`` and ``query`` where they do not come from the dataset's row of that id. The same id may
come often, for several attempts at one task. A line that cannot be scored as it stands is handed out as what is wrong
with it, and the others are scored.
"""

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from aworld_train.errors import AworldTrainError, DatasetError, RewardError, UsageError, nearest
from aworld_train.reward.scored import Scored
from aworld_train.reward.scoring import score
from aworld_train.reward.settings import RewardSettings

_AT_A_TIME = 64
_TEXTS = ("answer", "scorer", "answer_schema", "query")


@dataclass(frozen=True)
class Truth:
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


@dataclass(frozen=True)
class Line:
    """A line of the file and what became of it.

    Attributes:
        place: File and line.
        end: Bytes of the file up to its end.
        id: The task's id, as it stands there; None where it could not be read.
        scored: The score; None for a line that cannot be scored.
        fault: Why it cannot be.
    """

    place: str
    end: int
    id: str | int | None
    scored: Scored | None
    fault: str | None = None


async def score_file(
    path: Path, settings: RewardSettings, truths: Mapping[str, Truth] | None = None
) -> AsyncIterator[Line]:
    """Score each line of a file.

    Args:
        path: The file.
        settings: How to score.
        truths: Tasks by id, which lines are joined to; None where each line says everything itself.

    Raises:
        UsageError: The file cannot be read.
    """
    under_way: deque[asyncio.Task[Line]] = deque()
    try:
        for place, end, text in _lines(path):
            under_way.append(asyncio.create_task(_score_line(place, end, text, settings, truths)))
            if len(under_way) >= _AT_A_TIME:
                yield await under_way.popleft()
        while under_way:
            yield await under_way.popleft()
    finally:
        for task in under_way:
            task.cancel()


def read_truths(path: Path) -> dict[str, Truth]:
    """The tasks of a dataset by id: a parquet file of this package's or verl's, or a file of JSON lines.

    In parquet, the id is ``extra_info.id``, and ``extra_info.index`` where there is none.

    Raises:
        DatasetError: It cannot be read, or two tasks have the same id.
    """
    found: dict[str, Truth] = {}
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


def find_truth(truths: Mapping[str, Truth], name: str) -> Truth:
    """The task of this id.

    Raises:
        DatasetError: There is none.
    """
    if name not in truths:
        hint = nearest(name, tuple(truths)) if len(truths) < 10_000 else None
        meant = f" Did you mean {hint!r}?" if hint else ""
        raise DatasetError(f"the dataset has no task with the id {name!r}.{meant}")
    return truths[name]


async def _score_line(
    place: str, end: int, text: bytes, settings: RewardSettings, truths: Mapping[str, Truth] | None
) -> Line:
    name: str | int | None = None
    try:
        data = _object(text)
        name = _id_of(data)
        truth = _truth_of(str(name), data, truths)
        scored = await score(
            _prediction(data),
            ground_truth=truth.answer,
            scorer=truth.scorer,
            answer_schema=truth.answer_schema,
            query=truth.query,
            info=truth.info,
            settings=settings,
        )
    except AworldTrainError as error:
        return Line(place, end, name, None, error.message)
    return Line(place, end, name, scored)


def _lines(path: Path) -> Iterator[tuple[str, int, bytes]]:
    end = 0
    try:
        with path.open("rb") as file:
            for number, text in enumerate(file, 1):
                end += len(text)
                if text.strip():
                    yield f"{path}, line {number}", end, text
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from error


def _object(text: bytes) -> dict[str, Any]:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RewardError(f"this is no JSON: {error}") from error
    if not isinstance(data, dict):
        raise RewardError("this is no JSON object.")
    return data


def _id_of(data: Mapping[str, Any]) -> str | int:
    name = data.get("id")
    if isinstance(name, bool) or not isinstance(name, str | int) or name == "":
        raise RewardError("it has no 'id', which must be a text or a whole number.")
    return name


def _prediction(data: Mapping[str, Any]) -> str | list[Mapping[str, Any]]:
    prediction = data.get("prediction")
    if isinstance(prediction, str):
        return prediction
    if isinstance(prediction, list) and all(
        isinstance(message, dict) and isinstance(message.get("role"), str) for message in prediction
    ):
        return prediction
    raise RewardError("its 'prediction' must be a text, or a list of messages that have a 'role' each.")


def _truth_of(name: str, data: Mapping[str, Any], truths: Mapping[str, Truth] | None) -> Truth:
    """The task's row, and what the line says otherwise."""
    said: dict[str, Any] = {key: _text(data, key) for key in _TEXTS if data.get(key) is not None}
    if truths is not None and (name in truths or "answer" not in said):
        return replace(find_truth(truths, name), **said)
    if "answer" in said:
        return Truth(**said)
    raise RewardError("it has no 'answer'. Add it, or name the dataset it is in with --dataset.")


def _text(data: Mapping[str, Any], key: str) -> str:
    value = data[key]
    if isinstance(value, str):
        return value
    if key == "answer" and isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    raise RewardError(f"its {key!r} must be a text, not {type(value).__name__}.")


def _json_tasks(path: Path) -> Iterator[tuple[str, str, Truth]]:
    for place, _, text in _lines(path):
        try:
            data = _object(text)
            name = str(_id_of(data))
            if data.get("answer") is None:
                raise RewardError("it has no 'answer'.")
            said: dict[str, Any] = {key: _text(data, key) for key in _TEXTS if data.get(key) is not None}
        except RewardError as error:
            raise DatasetError(f"{place}: {error.message}") from error
        truth = Truth(
            said["answer"], said.get("scorer"), said.get("answer_schema"), said.get("query", ""), data
        )
        yield place, name, truth


def _parquet_tasks(path: Path) -> Iterator[tuple[str, str, Truth]]:
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
                truth = Truth(
                    answer, info.get("scorer") or None, info.get("answer_schema") or None, query, info
                )
                yield f"{path}, row {number}", name, truth
