"""How well a judge agrees with people: the verdicts it gives on answers that were labelled before.

Answers on which it abstained are counted and are in no share. Cohen's kappa (1960) takes off what two who judge by
chance would agree on: a judge that calls everything right agrees often where most answers are right, at a kappa of 0.
"""

import asyncio
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from aworld_train.errors import DatasetError, nearest
from aworld_train.evaluation.interval import wilson_interval
from aworld_train.reward.judge.scorer import llm_judge
from aworld_train.reward.scored import Score, ScoringContext
from aworld_train.reward.settings import RewardSettings

_FIELDS = ("id", "query", "answer", "prediction", "label")


@dataclass(frozen=True)
class Labelled:
    """An answer that somebody labelled.

    Attributes:
        id: What reports call it.
        query: What was asked.
        answer: The right answer.
        prediction: The answer to judge.
        label: Whether it is right.
    """

    id: str
    query: str
    answer: str
    prediction: str
    label: bool


@dataclass(frozen=True)
class Agreement:
    """How a judge agrees with labels.

    Attributes:
        n: Answers.
        abstained: Of these, those without a verdict.
        accuracy: Share of the verdicts that are the label; None if there are none, as with all shares.
        interval: 95 % Wilson score interval of it.
        kappa: Cohen's kappa; None where chance alone agrees always.
        precision: Share of the answers called right that are.
        recall: Share of the right answers that are called so.
        confusion: By label, then by verdict, how many.
        disagreements: Ids of the answers whose verdict is not the label.
        causes: Why there was no verdict, by id.
        cost: What the requests cost, by the models' prices.
        calls: Requests sent.
        cached: Verdicts that were given before.
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

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)


def read_labelled(file: Path) -> list[Labelled]:
    """The lines of a JSONL file with ``id``, ``query``, ``answer``, ``prediction`` and ``label``.

    Raises:
        DatasetError: It cannot be read, has no lines, or a line is not of that form.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DatasetError(f"{file} cannot be read: {error}.") from error
    lines = [
        _labelled(f"{file}, line {at}", line) for at, line in enumerate(text.split("\n"), 1) if line.strip()
    ]
    if not lines:
        raise DatasetError(f"{file} has no lines; write one JSON object a line, with {', '.join(_FIELDS)}.")
    return lines


async def measure(
    labelled: Sequence[Labelled],
    settings: RewardSettings,
    progress: Callable[[int], None] = lambda done: None,
) -> Agreement:
    """Judge all of them; ``progress`` is told how many are done.

    No more are begun at a time than may be asked at a time, and each has, beside its time limit, the time for its turn.
    """
    patient = settings.patient()
    scores: dict[int, Score] = {}
    remaining = iter(enumerate(labelled))

    async def work() -> None:
        for at, row in remaining:
            context = ScoringContext(query=row.query, text=row.prediction, settings=patient)
            scores[at] = await llm_judge(row.prediction, row.answer, context)
            progress(len(scores))

    async with asyncio.TaskGroup() as group:
        for _ in range(min(settings.judge.concurrency, len(labelled))):
            group.create_task(work())
    return agreement_of([(row, scores[at]) for at, row in enumerate(labelled)])


def agreement_of(judged: Sequence[tuple[Labelled, Score]]) -> Agreement:
    """The figures of answers and what a judge said of them."""
    counts = {
        label: dict.fromkeys(("correct", "incorrect", "abstained"), 0) for label in ("correct", "incorrect")
    }
    disagreements, causes = [], {}
    for row, score in judged:
        said = "abstained" if score.value is None else _word(score.value > 0)
        counts[_word(row.label)][said] += 1
        if score.value is None:
            causes[row.id] = "; ".join(score.steps)
        elif said != _word(row.label):
            disagreements.append(row.id)
    right, missed = counts["correct"]["correct"], counts["correct"]["incorrect"]
    wrongly, refused = counts["incorrect"]["correct"], counts["incorrect"]["incorrect"]
    n = right + missed + wrongly + refused
    return Agreement(
        n=len(judged),
        abstained=len(judged) - n,
        accuracy=_ratio(right + refused, n),
        interval=wilson_interval(right + refused, n) if n else None,
        kappa=_kappa(right, missed, wrongly, refused),
        precision=_ratio(right, right + wrongly),
        recall=_ratio(right, right + missed),
        confusion=counts,
        disagreements=tuple(disagreements),
        causes=causes,
        cost=math.fsum(score.parts["judge_cost"] for _, score in judged),
        calls=round(sum(score.parts["judge_calls"] for _, score in judged)),
        cached=round(sum(score.parts["judge_cached"] for _, score in judged)),
    )


def _kappa(right: int, missed: int, wrongly: int, refused: int) -> float | None:
    n = right + missed + wrongly + refused
    by_chance = (right + missed) * (right + wrongly) + (wrongly + refused) * (missed + refused)
    # Both times n squared, so that "always by chance" is exact.
    return _ratio(n * (right + refused) - by_chance, n * n - by_chance)


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _word(right: bool) -> str:
    return "correct" if right else "incorrect"


def _labelled(where: str, line: str) -> Labelled:
    try:
        data = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DatasetError(f"{where}: this is not JSON: {error}.") from error
    if not isinstance(data, dict):
        raise DatasetError(f"{where}: this is no JSON object; it needs {', '.join(_FIELDS)}.")
    for name in _FIELDS:
        if name not in data:
            meant = nearest(name, [key for key in data if key not in _FIELDS])
            hint = f"; is it {meant!r}?" if meant else "."
            raise DatasetError(f"{where}: there is no {name!r}{hint}")
    label = data["label"]
    if not (isinstance(label, bool) or (type(label) is int and label in (0, 1))):
        raise DatasetError(f"{where}: the label is {label!r}; it must be 0, 1, false or true.")
    texts = {name: _text(where, name, data[name]) for name in _FIELDS if name != "label"}
    return Labelled(**texts, label=bool(label))


def _text(where: str, name: str, value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise DatasetError(f"{where}: {name!r} must be a text or a number, not {json.dumps(value)[:80]}.")
    return value if isinstance(value, str) else json.dumps(value)
