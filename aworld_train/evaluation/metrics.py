"""The figures of an evaluation: how good, how sure, at what cost, and where it fails.

Averages are over tasks, each with the mean of its scored attempts. Tokens, cost, tools and outcomes are of all attempts
that have ended, because all of them were made; times and turns are of those with a score, because an error lasts as
long as what failed.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from statistics import fmean
from typing import Any

from aworld_train.evaluation.results import EvalTask, Evaluation, TaskAttempt
from aworld_train.evaluation.statistics import (
    Scores,
    average,
    average_interval,
    majority,
    pass_all,
    pass_at,
)
from aworld_train.evaluation.votes import votes_of

CONFIDENCE = "confidence"
"""The part of a score that holds the confidence that the model stated, from 0 to 1."""
UNLABELLED = ""
"""The group of the tasks without a label where others have one."""
BINS = 10
_MAX_CAUSES = 20
_MAX_CAUSE_CHARS = 300


@dataclass(frozen=True)
class GroupFigures:
    """The figures of the tasks with one label; ``n`` of them have a score, of which ``accuracy`` is the avg@k."""

    tasks: int
    n: int
    accuracy: float | None
    interval: tuple[float, float] | None
    errors: int


@dataclass(frozen=True)
class SumAndMean:
    """A quantity of attempts: its sum, and its mean over the attempts."""

    total: int
    mean: float


@dataclass(frozen=True)
class Cost:
    """What the model's tokens cost by the price table; ``per_task`` is over the tasks that were begun."""

    total: float
    per_task: float
    per_attempt: float
    per_right: float | None


@dataclass(frozen=True)
class Latency:
    """How long an attempt with a score took, in seconds, and the shares of it in which model and tools worked."""

    mean: float
    median: float
    p90: float
    p99: float
    model_share: float
    tool_share: float


@dataclass(frozen=True)
class Turns:
    """Model calls of an attempt with a score."""

    mean: float
    median: float
    max: int


@dataclass(frozen=True)
class CalibrationBin:
    """Answers of neighbouring confidence: how many, their mean confidence, and the share of them that is right."""

    n: int
    confidence: float
    accuracy: float


@dataclass(frozen=True)
class Calibration:
    """The calibration of stated confidences.

    ``rms_error`` is the root mean square, over at most ten bins of equal mass, weighted by their answers, of confidence
    minus accuracy (Hendrycks et al. 2019, arXiv:1812.04606), as Humanity's Last Exam reports it; the authors' script
    has bins of 100 answers and leaves out the last. ``brier`` is the mean square of confidence minus score (Brier
    1950).
    """

    n: int
    rms_error: float
    brier: float
    bins: tuple[CalibrationBin, ...]


@dataclass(frozen=True)
class Figures:
    """All figures of an evaluation; ``accuracy`` is avg@k, and no average includes attempts that could not be scored.

    ``interval`` is that of ``statistics.average_interval``. ``n`` is the number of tasks that have a score, and
    ``tasks_at`` that with k scored attempts. ``majority`` is empty where scorers name no answers (see ``votes``).
    ``groups`` as of `groups_of`.
    ``correct_with_tool`` is the share of the right answers in whose attempts a tool was called. ``unscored`` counts by
    scorer and reason.
    """

    model: str
    dataset: str
    accuracy: float | None
    interval: tuple[float, float] | None
    n: int
    tasks: int
    attempts: int
    attempts_expected: int
    attempts_per_task: int
    errors: int
    pass_at: Mapping[int, float]
    pass_all: Mapping[int, float]
    majority: Mapping[int, float]
    tasks_at: Mapping[int, int]
    groups: Mapping[str, Mapping[str, GroupFigures]]
    tool_calls: int
    tool_errors: int
    correct_with_tool: float | None
    outcomes: Mapping[str, int]
    unscored: Mapping[str, int]
    causes: Mapping[str, int]
    parts: Mapping[str, float]
    suspicions: Mapping[str, int]
    faults: Mapping[str, int]
    turns: Turns | None
    prompt_tokens: SumAndMean
    sampled_tokens: SumAndMean
    cost: Cost | None
    latency: Latency | None
    calibration: Calibration | None
    seconds: float

    @property
    def is_complete(self) -> bool:
        return self.attempts >= self.attempts_expected

    def to_json(self) -> dict[str, Any]:
        plain = asdict(self)
        for name in ("pass_at", "pass_all", "majority", "tasks_at"):
            plain[name] = {str(k): value for k, value in plain[name].items()}
        tokens = {"prompt": plain.pop("prompt_tokens"), "sampled": plain.pop("sampled_tokens")}
        return {**plain, "tokens": tokens}


def figures_of(evaluation: Evaluation, *, seconds: float | None = None) -> Figures:
    """The figures of the attempts that have ended; ``seconds`` overrides the duration that the summary tells."""
    attempts, scores = evaluation.attempts, evaluation.scores
    scored = [attempt for attempt in attempts if attempt.score is not None]
    ladder = ks(int(evaluation.settings["attempts"]))
    votes = votes_of(evaluation, ladder)
    mean, interval = _average(scores)
    return Figures(
        model=str(evaluation.settings.get("model") or ""),
        dataset=", ".join(map(str, evaluation.settings.get("dataset") or ())),
        accuracy=mean,
        interval=interval,
        n=sum(map(bool, scores.values())),
        tasks=int(evaluation.settings["tasks"]),
        attempts=len(attempts),
        attempts_expected=evaluation.expected,
        attempts_per_task=int(evaluation.settings["attempts"]),
        errors=len(attempts) - len(scored),
        pass_at=_by_k(ladder, lambda k: pass_at(scores, k)),
        pass_all=_by_k(ladder, lambda k: pass_all(scores, k)),
        majority=_by_k(ladder, lambda k: majority(votes, k)) if votes else {},
        tasks_at={k: sum(len(each) >= k for each in scores.values()) for k in ladder},
        groups=groups_of(evaluation),
        tool_calls=sum(attempt.figures.tool_calls or 0 for attempt in attempts),
        tool_errors=sum(attempt.figures.tool_errors or 0 for attempt in attempts),
        correct_with_tool=_correct_with_tool(scored),
        outcomes=_counted(attempt.figures.outcome or "" for attempt in attempts),
        unscored=_counted(attempt.unscored for attempt in attempts if attempt.unscored),
        causes=_causes(attempt for attempt in attempts if attempt.is_error),
        parts=_part_means(attempts),
        suspicions=_counted(sign for attempt in attempts for sign in attempt.figures.suspicions or ()),
        faults=_summed(attempt.figures.faults or {} for attempt in attempts),
        turns=_turns(scored),
        prompt_tokens=_sum_and_mean([attempt.figures.given_tokens or 0 for attempt in attempts]),
        sampled_tokens=_sum_and_mean([attempt.figures.sampled_tokens or 0 for attempt in attempts]),
        cost=_cost(attempts),
        latency=_latency(scored),
        calibration=calibration_of(
            [
                (attempt.parts[CONFIDENCE], attempt.score)
                for attempt in scored
                if attempt.score is not None and CONFIDENCE in attempt.parts
            ]
        ),
        seconds=_seconds(evaluation) if seconds is None else seconds,
    )


def calibration_of(answers: Sequence[tuple[float, float]]) -> Calibration | None:
    """The calibration of (confidence, score) pairs in any order, equal confidences by their mean; None without any."""
    if not answers:
        return None
    scores: dict[float, list[float]] = defaultdict(list)
    for confidence, score in answers:
        scores[confidence].append(score)
    mean = {confidence: fmean(each) for confidence, each in scores.items()}
    ordered = sorted(confidence for confidence, _ in answers)
    n, count = len(ordered), min(BINS, len(ordered))
    slices = [ordered[i * n // count : (i + 1) * n // count] for i in range(count)]
    bins = tuple(
        CalibrationBin(len(each), fmean(each), fmean(mean[value] for value in each)) for each in slices
    )
    square = math.fsum(each.n * (each.confidence - each.accuracy) ** 2 for each in bins) / n
    brier = fmean((confidence - score) ** 2 for confidence, score in answers)
    return Calibration(n, math.sqrt(square), brier, bins)


def ks(attempts: int) -> list[int]:
    """1, 2, 4, ... and the number of attempts itself."""
    ladder = [1]
    while ladder[-1] * 2 < attempts:
        ladder.append(ladder[-1] * 2)
    return ladder if attempts <= 1 else [*ladder, attempts]


def percentile(ordered: Sequence[float], share: float) -> float:
    """The value below which a share of values lies, between neighbours in proportion; ``ordered`` is not empty."""
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def _average(scores: Scores) -> tuple[float | None, tuple[float, float] | None]:
    return (average(scores), average_interval(scores)) if any(scores.values()) else (None, None)


def _by_k(ladder: Iterable[int], figure: Callable[[int], float | None]) -> dict[int, float]:
    values = {k: figure(k) for k in ladder}
    return {k: value for k, value in values.items() if value is not None}


_Labels = Callable[[EvalTask], Sequence[str]]


def groups_of(evaluation: Evaluation) -> dict[str, dict[str, GroupFigures]]:
    """The figures of each label by grouping (level, source, scorer, tag), without groupings of one label."""
    labels: dict[str, _Labels] = {
        "level": lambda task: [task.level],
        "source": lambda task: [task.source],
        "scorer": lambda task: [_scorer(evaluation, task)],
        "tag": lambda task: task.tags or [UNLABELLED],
    }
    grouped = {name: _group(evaluation, each) for name, each in labels.items()}
    return {name: groups for name, groups in grouped.items() if len(groups) > 1}


def _scorer(evaluation: Evaluation, task: EvalTask) -> str:
    """The scorer that a task names, or else the one that scored it."""
    attempts = evaluation.attempts_by_task.get(task.id, ())
    return task.scorer or next((attempt.scorer for attempt in attempts if attempt.scorer), UNLABELLED)


def _group(evaluation: Evaluation, labels: _Labels) -> dict[str, GroupFigures]:
    members: dict[str, list[str]] = defaultdict(list)
    for task in evaluation.tasks.values():
        for label in labels(task):
            members[label].append(task.id)
    return {label: _group_figures(evaluation, members[label]) for label in sorted(members, key=natural)}


def _group_figures(evaluation: Evaluation, tasks: Sequence[str]) -> GroupFigures:
    scores = {task: evaluation.scores[task] for task in tasks}
    attempts = [attempt for task in tasks for attempt in evaluation.attempts_by_task.get(task, ())]
    errors = sum(attempt.is_error for attempt in attempts)
    return GroupFigures(len(tasks), sum(map(bool, scores.values())), *_average(scores), errors)


def natural(label: str) -> list[tuple[int, int, str]]:
    """A key that sorts level 2 before level 10, and what has no label last."""
    parts = re.split(r"(\d+)", label)
    key = [(0, int(part), "") if part.isdecimal() else (1, 0, part.casefold()) for part in parts if part]
    return key or [(2, 0, "")]


def _correct_with_tool(scored: Sequence[TaskAttempt]) -> float | None:
    correct = sum(attempt.score or 0.0 for attempt in scored)
    with_tool = sum(attempt.score or 0.0 for attempt in scored if attempt.figures.tool_calls)
    return with_tool / correct if correct else None


def _counted(values: Iterable[str]) -> dict[str, int]:
    """How often each value occurs, the most frequent first."""
    return dict(sorted(Counter(values).items(), key=lambda each: (-each[1], each[0])))


def _causes(errors: Iterable[TaskAttempt]) -> dict[str, int]:
    causes = _counted(
        (attempt.figures.cause or attempt.figures.outcome or "")[:_MAX_CAUSE_CHARS] for attempt in errors
    )
    return dict(islice(causes.items(), _MAX_CAUSES))


def _summed(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for each in counts:
        total.update(each)
    return dict(sorted(total.items(), key=lambda each: (-each[1], each[0])))


def _part_means(attempts: Sequence[TaskAttempt]) -> dict[str, float]:
    values: dict[str, list[float]] = defaultdict(list)
    for attempt in attempts:
        for name, value in attempt.parts.items():
            values[name].append(value)
    return {name: fmean(values[name]) for name in sorted(values)}


def _turns(scored: Sequence[TaskAttempt]) -> Turns | None:
    turns = sorted(attempt.figures.turns or 0 for attempt in scored)
    return Turns(fmean(turns), percentile(turns, 0.5), turns[-1]) if turns else None


def _sum_and_mean(values: Sequence[int]) -> SumAndMean:
    return SumAndMean(sum(values), fmean(values) if values else 0.0)


def _cost(attempts: Sequence[TaskAttempt]) -> Cost | None:
    costs = [attempt.cost for attempt in attempts if attempt.cost is not None]
    if not costs:
        return None
    total = sum(costs)
    right = sum(attempt.score or 0.0 for attempt in attempts)
    tasks = len({attempt.key.task for attempt in attempts})
    return Cost(total, total / tasks, total / len(attempts), total / right if right else None)


def _latency(scored: Sequence[TaskAttempt]) -> Latency | None:
    if not scored:
        return None
    seconds = sorted(attempt.figures.seconds or 0.0 for attempt in scored)
    total = sum(seconds) or 1.0
    return Latency(
        mean=fmean(seconds),
        median=percentile(seconds, 0.5),
        p90=percentile(seconds, 0.9),
        p99=percentile(seconds, 0.99),
        model_share=sum(attempt.figures.generate_seconds or 0.0 for attempt in scored) / total,
        tool_share=sum(attempt.figures.tool_seconds or 0.0 for attempt in scored) / total,
    )


def _seconds(evaluation: Evaluation) -> float:
    recorded = evaluation.run.summary.get("seconds")
    if isinstance(recorded, int | float):
        return float(recorded)
    attempts = evaluation.attempts
    if not attempts:
        return 0.0
    return max(each.ended for each in attempts) - min(each.key.began for each in attempts)
