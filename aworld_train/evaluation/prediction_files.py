"""Scoring files of predictions: each line by itself, in the order of the file, many at a time and never all in memory.

A line is a JSON object with ``id`` and ``prediction`` (the final text, or messages with roles), and with ``answer``,
``scorer``, ``answer_schema`` and ``query`` where they do not come from the dataset's row of that id. The same id may
come often, for several attempts at one task. A line that cannot be scored as it stands is handed out as what is wrong
with it, and the others are scored.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from aworld_train.errors import AworldTrainError, RewardError
from aworld_train.evaluation.ground_truths import GroundTruth, find_ground_truth
from aworld_train.evaluation.prediction_lines import id_of, lines_of, read_object, texts_of
from aworld_train.reward.scored import ScoreResult
from aworld_train.reward.scoring import score
from aworld_train.reward.settings import RewardSettings

_AT_A_TIME = 64
_CODE_AT_A_TIME = 4  # as many sessions as tool environments serve where they are not told otherwise


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
    scored: ScoreResult | None
    fault: str | None = None


async def score_file(
    path: Path, settings: RewardSettings, truths: Mapping[str, GroundTruth] | None = None
) -> AsyncIterator[Line]:
    """Score each line of a file.

    Args:
        path: The file.
        settings: How to score.
        truths: Tasks by id, which lines are joined to; None where each line says everything itself.

    Raises:
        UsageError: The file cannot be read.
    """
    judged = settings.judge.concurrency
    turns = {"llm_judge": asyncio.Semaphore(judged), "code_tests": asyncio.Semaphore(_CODE_AT_A_TIME)}
    # More than have a turn, so that a line which takes long does not keep those after it from being begun.
    most = max(_AT_A_TIME, 2 * judged)
    under_way: deque[asyncio.Task[Line]] = deque()
    try:
        for place, end, text in lines_of(path):
            under_way.append(asyncio.create_task(_score_line(place, end, text, settings, truths, turns)))
            if len(under_way) >= most:
                yield await under_way.popleft()
        while under_way:
            yield await under_way.popleft()
    finally:
        for task in under_way:
            task.cancel()


async def _score_line(
    place: str,
    end: int,
    text: bytes,
    settings: RewardSettings,
    truths: Mapping[str, GroundTruth] | None,
    turns: Mapping[str, asyncio.Semaphore],
) -> Line:
    name: str | int | None = None
    try:
        data = read_object(text)
        name = id_of(data)
        truth = _truth_of(str(name), data, truths)
        prediction = _prediction(data)
        asked = settings.scorers_asked([truth.scorer])
        # The time of a score begins with its turn: no line is without one for having waited for the others.
        turn = next((turns[scorer] for scorer in asked if scorer in turns), nullcontext())
        async with turn:
            scored = await score(
                prediction,
                ground_truth=truth.answer,
                scorer=truth.scorer,
                answer_schema=truth.answer_schema,
                query=truth.query,
                info=truth.info,
                settings=settings.patient() if "llm_judge" in asked else settings,
            )
    except AworldTrainError as error:
        return Line(place, end, name, None, error.message)
    return Line(place, end, name, scored)


def _prediction(data: Mapping[str, Any]) -> str | list[Mapping[str, Any]]:
    prediction = data.get("prediction")
    if isinstance(prediction, str):
        return prediction
    if isinstance(prediction, list) and all(
        isinstance(message, dict) and isinstance(message.get("role"), str) for message in prediction
    ):
        return prediction
    raise RewardError("its 'prediction' must be a text, or a list of messages that have a 'role' each.")


def _truth_of(name: str, data: Mapping[str, Any], truths: Mapping[str, GroundTruth] | None) -> GroundTruth:
    """The task's row, and what the line says otherwise."""
    said: dict[str, Any] = dict(texts_of(data))
    if truths is not None and (name in truths or "answer" not in said):
        return replace(find_ground_truth(truths, name), **said)
    if "answer" in said:
        return GroundTruth(**said)
    raise RewardError("it has no 'answer'. Add it, or name the dataset it is in with --dataset.")
