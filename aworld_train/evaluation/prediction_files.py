"""Scoring files of predictions: line by line in the order of the file, many at a time, without loading the whole file.

A line is a JSON object with ``id`` and ``prediction`` (the final text, or messages with roles), and with ``answer``,
``scorer``, ``answer_schema`` and ``query`` where they do not come from the dataset's row of that id. An id may occur
several times, for several attempts at one task. A line that cannot be scored is returned with its fault, and the others
are scored.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from aworld_train.episode.score import ScoreResult
from aworld_train.errors import AworldTrainError, EnvironmentFailure, RewardError
from aworld_train.evaluation.ground_truths import GroundTruth, find_ground_truth
from aworld_train.evaluation.prediction_lines import read_id, read_lines, read_object, read_text_fields
from aworld_train.reward.code_tests import check_code_tests
from aworld_train.reward.scorers import CODE_TESTS
from aworld_train.reward.scoring import score
from aworld_train.reward.settings import RewardSettings

_MAX_CONCURRENT = 64
_MAX_CONCURRENT_CODE = 4  # the number of sessions that tool environments serve by default


@dataclass(frozen=True)
class ScoredLine:
    """A line of the file, ending at the byte ``end``, with its result or the reason why it cannot be scored."""

    location: str
    end: int
    id: str | int | None
    result: ScoreResult | None
    fault: str | None = None


async def score_file(
    path: Path, settings: RewardSettings, ground_truths: Mapping[str, GroundTruth] | None = None
) -> AsyncIterator[ScoredLine]:
    """Score each line of a file; ``ground_truths`` are tasks by id, to which lines are joined."""
    if _has_code(path, settings, ground_truths):
        with suppress(EnvironmentFailure):  # without an environment only these lines have no score
            check_code_tests(settings.tools, settings.timeout)
    judge_concurrency = settings.judge.concurrency
    turns = {
        "llm_judge": asyncio.Semaphore(judge_concurrency),
        CODE_TESTS: asyncio.Semaphore(_MAX_CONCURRENT_CODE),
    }
    # More than the semaphores admit, so that a slow line does not delay the start of those after it.
    max_tasks = max(_MAX_CONCURRENT, 2 * judge_concurrency)
    under_way: deque[asyncio.Task[ScoredLine]] = deque()
    try:
        for location, end, text in read_lines(path):
            under_way.append(
                asyncio.create_task(_score_line(location, end, text, settings, ground_truths, turns))
            )
            if len(under_way) >= max_tasks:
                yield await under_way.popleft()
        while under_way:
            yield await under_way.popleft()
    finally:
        for task in under_way:
            task.cancel()


def _has_code(path: Path, settings: RewardSettings, ground_truths: Mapping[str, GroundTruth] | None) -> bool:
    """Whether the answer of some line is to be run; False for a pipe, which cannot be read twice."""
    if not path.is_file():
        return False
    tasks_have_code = any(task.scorer == CODE_TESTS for task in (ground_truths or {}).values())
    for _, _, text in read_lines(path):
        if CODE_TESTS in settings.scorers_asked(()):
            return True
        if tasks_have_code or CODE_TESTS.encode() in text:
            with suppress(AworldTrainError):  # reported when the line is scored
                data = read_object(text)
                scorer = _find_truth(str(read_id(data)), data, ground_truths).scorer
                if CODE_TESTS in settings.scorers_asked([scorer]):
                    return True
    return False


async def _score_line(
    location: str,
    end: int,
    text: bytes,
    settings: RewardSettings,
    ground_truths: Mapping[str, GroundTruth] | None,
    turns: Mapping[str, asyncio.Semaphore],
) -> ScoredLine:
    name: str | int | None = None
    try:
        data = read_object(text)
        name = read_id(data)
        ground_truth = _find_truth(str(name), data, ground_truths)
        prediction = _prediction(data)
        scorers = settings.scorers_asked([ground_truth.scorer])
        # A score's time limit begins with its turn, so that no line times out because it waited for others.
        turn = next((turns[scorer] for scorer in scorers if scorer in turns), nullcontext())
        async with turn:
            result = await score(
                prediction,
                ground_truth=ground_truth.answer,
                scorer=ground_truth.scorer,
                answer_schema=ground_truth.answer_schema,
                query=ground_truth.query,
                info=ground_truth.info,
                settings=settings.patient() if "llm_judge" in scorers else settings,
            )
    except AworldTrainError as error:
        return ScoredLine(location, end, name, None, error.message)
    return ScoredLine(location, end, name, result)


def _prediction(data: Mapping[str, Any]) -> str | list[Mapping[str, Any]]:
    prediction = data.get("prediction")
    if isinstance(prediction, str):
        return prediction
    if isinstance(prediction, list) and all(
        isinstance(message, dict) and isinstance(message.get("role"), str) for message in prediction
    ):
        return prediction
    raise RewardError("its 'prediction' must be a text, or a list of messages that have a 'role' each.")


def _find_truth(
    name: str, data: Mapping[str, Any], ground_truths: Mapping[str, GroundTruth] | None
) -> GroundTruth:
    """The ground truth from the dataset's row, overridden by the fields of the line."""
    fields: dict[str, Any] = dict(read_text_fields(data))
    if ground_truths is not None and (name in ground_truths or "answer" not in fields):
        return replace(find_ground_truth(ground_truths, name), **fields)
    if "answer" in fields:
        return GroundTruth(**fields)
    raise RewardError("it has no 'answer'. Add it, or name the dataset it is in with --dataset.")
