"""Whether one agent is better than another on the same tasks: compared in pairs, each task with itself.

Most of the spread of a benchmark's score is that of its tasks, which both agents share; a comparison in pairs is free
of it. Tasks that only one of them has are left out.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean, pstdev

from aworld_train.evaluation.statistics import RIGHT, Scores

RESAMPLES = 10_000
_SEED = 20_260_101  # any; the same figures come out again
_CONFIDENCE = 0.95
_POWER = 0.8
_MAX_EXACT = 16  # differences of which all signs are tried
_MAX_AT_ONCE = 1_000_000  # values that are drawn at once


@dataclass(frozen=True)
class Difference:
    """The difference between two agents on the tasks that both have scores of, the second minus the first.

    ``interval`` is that of a bootstrap over tasks (see ``widened``). ``p_value`` is the chance of a difference at least
    as large if neither were better: McNemar's exact test with one attempt a task and scores of 0 and 1, else a
    permutation test of the signs. ``smallest`` is the smallest true difference that this many tasks with this spread
    would show in 8 of 10 measurements.
    """

    tasks: int
    first: float
    second: float
    difference: float
    interval: tuple[float, float]
    p_value: float
    won: int
    lost: int
    smallest: float


def compare(first: Scores, second: Scores, *, resamples: int = RESAMPLES) -> Difference:
    """Compare two agents in pairs of tasks; raises ValueError if they have no task in common."""
    common = [task for task in first if first[task] and second.get(task)]
    if not common:
        raise ValueError("no task has a score of both")
    pairs = [(fmean(first[task]), fmean(second[task])) for task in common]
    differences = [after - before for before, after in pairs]
    single = all(len(scores[task]) == 1 for task in common for scores in (first, second))
    binary = single and all(score in (0.0, RIGHT) for pair in pairs for score in pair)
    won, lost = sum(each > 0 for each in differences), sum(each < 0 for each in differences)
    attempts = fmean(len(scores[task]) for task in common for scores in (first, second))
    spread = widened(differences, attempts)
    return Difference(
        tasks=len(common),
        first=fmean(before for before, _ in pairs),
        second=fmean(after for _, after in pairs),
        difference=fmean(differences),
        interval=bootstrap_interval(spread, resamples),
        p_value=mcnemar(won, lost) if binary else sign_permutation(differences, resamples),
        won=won,
        lost=lost,
        smallest=smallest_difference(spread),
    )


def widened(differences: Sequence[float], attempts: float) -> list[float]:
    """Differences with one task won and one lost besides, as Bonett and Price (2012) add to Wald's interval.

    Without them the interval of few tasks is too narrow, and that of tasks that all agree a point. Both tasks differ
    by as much as the mean of so many attempts scatters at most.
    """
    step = 1 / math.sqrt(attempts)
    return [*differences, step, -step]


def bootstrap_interval(values: Sequence[float], resamples: int = RESAMPLES) -> tuple[float, float]:
    """The 95 % percentile interval of the mean of values that are drawn again with replacement."""
    import numpy

    generator = numpy.random.default_rng(_SEED)
    array = numpy.asarray(values, float)
    means = numpy.concatenate(
        [
            array[generator.integers(0, len(array), (count, len(array)), numpy.int32)].mean(axis=1)
            for count in _chunks(resamples, len(array))
        ]
    )
    tail = (1 - _CONFIDENCE) / 2
    low, high = numpy.quantile(means, [tail, 1 - tail])
    return float(low), float(high)


def mcnemar(won: int, lost: int) -> float:
    """McNemar's exact two-sided test: the chance that a fair coin is at least so uneven (McNemar 1947)."""
    n = won + lost
    tail: float = sum(math.comb(n, each) for each in range(min(won, lost) + 1)) / 2**n
    return min(1.0, 2 * tail)


def sign_permutation(differences: Sequence[float], resamples: int = RESAMPLES) -> float:
    """The chance that the mean of differences is at least so far from 0 if their signs are drawn (Fisher 1935).

    All signs are tried where there are few differences that are not 0.
    """
    values = [each for each in differences if each]
    if not values:
        return 1.0
    observed = abs(math.fsum(values)) * (1 - 1e-12)
    if len(values) <= _MAX_EXACT:
        sums = [0.0]
        for each in values:
            sums = [total + sign * each for total in sums for sign in (1, -1)]
        return sum(abs(total) >= observed for total in sums) / len(sums)
    import numpy

    generator = numpy.random.default_rng(_SEED)
    array = numpy.asarray(values, float)
    extreme = 0
    for count in _chunks(resamples, len(array)):
        signs = generator.integers(0, 2, (count, len(array)), numpy.int8) * 2.0 - 1
        extreme += int((abs(signs @ array) >= observed).sum())
    return (extreme + 1) / (resamples + 1)


def _chunks(resamples: int, values: int) -> Iterator[int]:
    """How many resamples are made at once, so that some megabytes hold them."""
    at_once = max(1, _MAX_AT_ONCE // values)
    while resamples > 0:
        yield min(at_once, resamples)
        resamples -= at_once


def smallest_difference(differences: Sequence[float]) -> float:
    """The true difference that a two-sided test at 5 % finds with a power of 80 %, by the normal approximation."""
    normal = NormalDist()
    factor = normal.inv_cdf(1 - (1 - _CONFIDENCE) / 2) + normal.inv_cdf(_POWER)
    return factor * pstdev(differences) / math.sqrt(len(differences))


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values of several comparisons, corrected so that one wrong finding in all is as rare as in one (Holm 1979)."""
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    corrected, largest = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        corrected[index] = largest
    return corrected
