"""Figures over several attempts at each task, with the task as the unit: attempts at one task are not independent.

Scores lie between 0 and 1. An attempt that could not be scored is not among them; it is counted elsewhere.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, pvariance

Scores = Mapping[str, Sequence[float]]
"""The scores of each task's attempts, by task; tasks without a scored attempt have none."""

RIGHT = 1.0
"""The score of an attempt that counts as right in pass@k and its like."""


def wilson_interval(correct: float, n: float, z: float = 1.959964) -> tuple[float, float]:
    """95 % score interval of a share (Wilson 1927, JASA 22, 209-212)."""
    share = correct / n
    centre = share + z * z / (2 * n)
    spread = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    return max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale)


def average(scores: Scores) -> float:
    """avg@k: the mean over tasks of the mean over their attempts; ValueError if no task has a score."""
    return fmean(_means(scores))


def average_interval(scores: Scores) -> tuple[float, float]:
    """The 95 % interval of ``average`` for tasks drawn like these: Wilson's, for the number of independent
    attempts that have the same standard error.

    With one attempt a task that number is the number of tasks, and the interval exactly Wilson's. Attempts that agree
    add nothing to it, attempts that differ within tasks add up to all of them. The spread of few tasks' means is
    uncertain itself, so with several attempts it is that of one more task, which is as far off as one attempt.
    """
    means = _means(scores)
    mean, tasks = fmean(means), len(means)
    attempts = sum(map(len, scores.values()))
    spread = mean * (1 - mean)
    effective = float(tasks)
    if attempts > tasks and spread > 0:
        variance = pvariance(means, mean) + spread / tasks
        effective = min(float(attempts), tasks * spread / variance)
    low, high = wilson_interval(mean * effective, effective)
    # Where all or all but one attempt are right, rounding can put a bound on the wrong side of the average.
    return min(low, mean), max(high, mean)


def pass_at(scores: Scores, k: int) -> float | None:
    """pass@k: the chance that one of k attempts at a task is right, over the tasks with at least k scored attempts.

    Unbiased (Chen et al. 2021, arXiv:2107.03374, equation 1). None if no task has so many.
    """
    return _over_tasks(scores, k, lambda n, right: 1.0 - _share_of_choices(n - right, n, k))


def pass_all(scores: Scores, k: int) -> float | None:
    """pass^k: the chance that all of k attempts at a task are right; otherwise as ``pass_at`` (arXiv:2406.12045)."""
    return _over_tasks(scores, k, lambda n, right: _share_of_choices(right, n, k))


def majority(answers: Mapping[str, Sequence[tuple[str | None, float]]], k: int) -> float | None:
    """maj@k: the share of tasks whose most frequent answer among the first k attempts is right.

    ``answers`` has by task the vote of each attempt (see ``votes``) and its score; attempts without a vote count in
    nothing, and of several answers that are equally frequent each counts in part. None if no task has k attempts.
    """
    results = [_majority(attempts[:k]) for attempts in answers.values() if len(attempts) >= k]
    return fmean(results) if results else None


def _majority(attempts: Sequence[tuple[str | None, float]]) -> float:
    votes = Counter(answer for answer, _ in attempts if answer is not None)
    if not votes:
        return 0.0
    most = max(votes.values())
    score_of = {answer: score for answer, score in attempts if answer is not None}
    return fmean(float(score_of[answer] >= RIGHT) for answer, count in votes.items() if count == most)


def _means(scores: Scores) -> list[float]:
    means = [fmean(attempts) for attempts in scores.values() if attempts]
    if not means:
        raise ValueError("no task has a score")
    return means


def _over_tasks(scores: Scores, k: int, figure: Callable[[int, int], float]) -> float | None:
    results = [
        figure(len(attempts), sum(score >= RIGHT for score in attempts))
        for attempts in scores.values()
        if len(attempts) >= k
    ]
    return fmean(results) if results else None


def _share_of_choices(of: int, among: int, k: int) -> float:
    """The share of the choices of ``k`` among ``among`` that lie in ``of`` of them."""
    return math.comb(of, k) / math.comb(among, k)
