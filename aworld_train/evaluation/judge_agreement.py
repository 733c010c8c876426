"""How well a judge agrees with people, measured on labelled answers.

Answers on which the judge abstains are counted but are in no share. Cohen's kappa (1960) corrects for agreement by
chance: where most answers are right, a judge that calls every answer right agrees often, but its kappa is 0.
"""

import asyncio
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aworld_train.errors import DatasetError, DatasetNotFound, suggestion
from aworld_train.evaluation.statistics import wilson_interval
from aworld_train.reward.judge.scorer import llm_judge
from aworld_train.reward.score_types import Score, ScoringContext
from aworld_train.reward.settings import RewardSettings

_FIELDS = ("id", "query", "answer", "prediction", "label")


@dataclass(frozen=True)
class LabelledAnswer:
    """An answer with a person's label, True for right."""

    id: str
    query: str
    answer: str
    prediction: str
    label: bool


@dataclass(frozen=True)
class Agreement:
    """How a judge agrees with labels; shares are of the answers with a verdict, and None without any.

    ``kappa`` is None where agreement by chance is certain. ``confusion`` counts answers by label, then by verdict.
    ``causes`` are the reasons for missing verdicts, by id.
    """

    n: int
    abstained: int
    accuracy: float | None
    interval: tuple[float, float] | None
    kappa: float | None
    precision: float | None
    recall: float | None
    confusion: dict[str, dict[str, int]]
    disagreements: tuple[str, ...]
    causes: dict[str, str]
    cost: float
    calls: int
    cached: int


def read_labelled(file: Path) -> list[LabelledAnswer]:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise DatasetNotFound(f"{file} cannot be read: {reason}.") from error
    lines = [
        _labelled(f"{file}, line {number}", line)
        for number, line in enumerate(text.split("\n"), 1)
        if line.strip()
    ]
    if not lines:
        raise DatasetError(f"{file} has no lines; write one JSON object a line, with {', '.join(_FIELDS)}.")
    return lines


async def measure_agreement(
    labelled: Sequence[LabelledAnswer],
    settings: RewardSettings,
    progress: Callable[[int], None] = lambda done: None,
) -> Agreement:
    """Judge all of them; ``progress`` receives the number of judged answers.

    As many answers are judged at a time as requests are allowed, and each has, beside its time limit, the time to wait
    for its turn within the limit per minute.
    """
    patient_settings = settings.patient()
    scores: dict[int, Score] = {}
    remaining = iter(enumerate(labelled))

    async def work() -> None:
        for index, row in remaining:
            context = ScoringContext(query=row.query, text=row.prediction, settings=patient_settings)
            scores[index] = await llm_judge(row.prediction, row.answer, context)
            progress(len(scores))

    async with asyncio.TaskGroup() as group:
        for _ in range(min(settings.judge.concurrency, len(labelled))):
            group.create_task(work())
    return agreement_of([(row, scores[index]) for index, row in enumerate(labelled)])


def agreement_of(judged: Sequence[tuple[LabelledAnswer, Score]]) -> Agreement:
    counts = {
        label: dict.fromkeys(("correct", "incorrect", "abstained"), 0) for label in ("correct", "incorrect")
    }
    disagreements, causes = [], {}
    for row, score in judged:
        verdict = "abstained" if score.value is None else _verdict_name(score.value > 0)
        counts[_verdict_name(row.label)][verdict] += 1
        if score.value is None:
            causes[row.id] = "; ".join(score.steps)
        elif verdict != _verdict_name(row.label):
            disagreements.append(row.id)
    true_positive, false_negative = counts["correct"]["correct"], counts["correct"]["incorrect"]
    false_positive, true_negative = counts["incorrect"]["correct"], counts["incorrect"]["incorrect"]
    n = true_positive + false_negative + false_positive + true_negative
    return Agreement(
        n=len(judged),
        abstained=len(judged) - n,
        accuracy=_ratio(true_positive + true_negative, n),
        interval=wilson_interval(true_positive + true_negative, n) if n else None,
        kappa=_kappa(true_positive, false_negative, false_positive, true_negative),
        precision=_ratio(true_positive, true_positive + false_positive),
        recall=_ratio(true_positive, true_positive + false_negative),
        confusion=counts,
        disagreements=tuple(disagreements),
        causes=causes,
        cost=math.fsum(score.parts["judge_cost"] for _, score in judged),
        calls=round(sum(score.parts["judge_calls"] for _, score in judged)),
        cached=round(sum(score.parts["judge_cached"] for _, score in judged)),
    )


def _kappa(true_positive: int, false_negative: int, false_positive: int, true_negative: int) -> float | None:
    n = true_positive + false_negative + false_positive + true_negative
    both_positive = (true_positive + false_negative) * (true_positive + false_positive)
    both_negative = (false_positive + true_negative) * (false_negative + true_negative)
    by_chance = both_positive + both_negative
    # Both are multiplied by n squared, so the comparison with 0 is exact.
    return _ratio(n * (true_positive + true_negative) - by_chance, n * n - by_chance)


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _verdict_name(right: bool) -> str:
    return "correct" if right else "incorrect"


def _labelled(location: str, line: str) -> LabelledAnswer:
    try:
        data = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DatasetError(f"{location}: this is not JSON: {error}.") from error
    if not isinstance(data, dict):
        raise DatasetError(f"{location}: this is not a JSON object; it needs {', '.join(_FIELDS)}.")
    for name in _FIELDS:
        if name not in data:
            hint = suggestion(name, data.keys() - {*_FIELDS})
            raise DatasetError(f"{location}: {name!r} is missing.{hint}")
    label = data["label"]
    if not (isinstance(label, bool) or (type(label) is int and label in (0, 1))):
        raise DatasetError(f"{location}: the label is {label!r}; it must be 0, 1, false or true.")
    texts = {name: _text(location, name, data[name]) for name in _FIELDS if name != "label"}
    return LabelledAnswer(**texts, label=bool(label))


def _text(location: str, name: str, value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise DatasetError(f"{location}: {name!r} must be a text or a number, not {json.dumps(value)[:80]}.")
    return value if isinstance(value, str) else json.dumps(value)
