"""Evaluations against a first one, in pairs of tasks: is the difference shown, and which tasks make it.

Tasks are the same if their ids are, which are digests of their dataset's rows. A difference is shown if its p-value is
below 5 %; with several comparisons that is Holm's, so that one wrong finding in all of them is as rare as in one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from aworld_train.errors import UsageError
from aworld_train.evaluation.comparison import Difference, compare, holm
from aworld_train.evaluation.metrics import GroupFigures, groups_of
from aworld_train.evaluation.results import Evaluation
from aworld_train.evaluation.statistics import average, average_interval

SIGNIFICANT = 0.05
_QUESTION_CHARS = 120
# Settings that change what is measured, in the words of a warning.
_CONDITIONS = {
    "dataset": "datasets",
    "attempts": "numbers of attempts a task",
    "temperature": "temperatures",
    "top_p": "top_p",
    "top_k": "top_k",
    "agent": "agents",
}
_ERROR_SHARE = 0.02  # of attempts: by how much shares of errors differ before they are worth a warning


@dataclass(frozen=True)
class Flip:
    """A task whose attempts have another mean score in the other evaluation."""

    task: str
    index: int
    question: str
    before: float
    after: float


@dataclass(frozen=True)
class EvaluationSummary:
    """An evaluation's own figures; ``subject`` is the model, the checkpoint, or the agent that needs none.

    ``groups`` as of `groups_of`.
    """

    name: str
    model: str
    subject: str
    accuracy: float | None
    interval: tuple[float, float] | None
    n: int
    errors: int
    groups: Mapping[str, Mapping[str, GroupFigures]]


@dataclass(frozen=True)
class Comparison:
    """An evaluation compared with the first; ``p_value`` is corrected for the number of comparisons.

    ``won`` and ``lost`` have the tasks that differ most first. ``warnings`` say what else than the model differs.
    """

    name: str
    difference: Difference
    p_value: float
    won: tuple[Flip, ...]
    lost: tuple[Flip, ...]
    only_first: int
    only_this: int
    warnings: tuple[str, ...]

    @property
    def is_shown(self) -> bool:
        return self.p_value < SIGNIFICANT

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "shown": self.is_shown}


def compare_evaluations(evaluations: Sequence[Evaluation]) -> list[Comparison]:
    if len(evaluations) < 2:
        raise UsageError("Comparing takes two evaluations or more: aworld-train eval compare A B.")
    first, *others = evaluations
    differences = [_difference(first, other) for other in others]
    p_values = holm([difference.p_value for difference in differences])
    return [_comparison(first, *each) for each in zip(others, differences, p_values, strict=True)]


def summary_of(evaluation: Evaluation) -> EvaluationSummary:
    scores = evaluation.scores
    n = sum(map(bool, scores.values()))
    return EvaluationSummary(
        evaluation.name,
        str(evaluation.settings.get("model") or ""),
        evaluation.run.subject,
        average(scores) if n else None,
        average_interval(scores) if n else None,
        n,
        len(evaluation.errors),
        groups_of(evaluation),
    )


def _difference(first: Evaluation, other: Evaluation) -> Difference:
    try:
        return compare(first.scores, other.scores)
    except ValueError:
        raise UsageError(
            f"{first.name} and {other.name} have no task in common that both have a score of. Tasks are the same if "
            "their dataset's rows are."
        ) from None


def _comparison(first: Evaluation, other: Evaluation, difference: Difference, p_value: float) -> Comparison:
    flips = _flips(first, other)
    before, after = (_scored_tasks(each) for each in (first, other))
    return Comparison(
        other.name,
        difference,
        p_value,
        tuple(flip for flip in flips if flip.after > flip.before),
        tuple(flip for flip in flips if flip.after < flip.before),
        len(before - after),
        len(after - before),
        tuple(_warnings(first, other, len(before ^ after))),
    )


def _scored_tasks(evaluation: Evaluation) -> set[str]:
    return {task for task, scores in evaluation.scores.items() if scores}


def _flips(first: Evaluation, other: Evaluation) -> list[Flip]:
    flips = []
    for task, scores in first.scores.items():
        other_scores = other.scores.get(task)
        if not scores or not other_scores or fmean(scores) == fmean(other_scores):
            continue
        shown = first.tasks[task]
        question = " ".join(shown.question.split())[:_QUESTION_CHARS]
        flips.append(Flip(task, shown.index, question, fmean(scores), fmean(other_scores)))
    return sorted(flips, key=lambda flip: (-abs(flip.after - flip.before), flip.index, flip.task))


def _warnings(first: Evaluation, other: Evaluation, alone: int) -> list[str]:
    warnings = [
        f"The {noun} differ: {first.settings.get(name)} and {other.settings.get(name)}."
        for name, noun in _CONDITIONS.items()
        if first.settings.get(name) != other.settings.get(name)
    ]
    if alone:
        tasks = "1 task has" if alone == 1 else f"{alone} tasks have"
        warnings.append(f"{tasks} a score in one of them alone, which counts in no difference.")
    shares = [len(each.errors) / max(1, len(each.attempts)) for each in (first, other)]
    if abs(shares[0] - shares[1]) > _ERROR_SHARE:
        warnings.append(
            f"Attempts without a score are {shares[0]:.1%} and {shares[1]:.1%}: if they are the hard tasks, the "
            "comparison favours the one with more of them. `aworld-train eval --resume --retry-errors` repeats them."
        )
    for each in (first, other):
        if len(each.attempts) < each.expected:
            warnings.append(f"{each.name} has {len(each.attempts)} of its {each.expected} attempts.")
    return warnings
