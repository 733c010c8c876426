"""Whether one agent is better than another on the same tasks: compared in pairs, each task with itself.

Most of the spread of a benchmark's score is that of its tasks, which both agents share; a comparison in pairs is free
of it. Tasks that only one of them has are left out.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean, pstdev

from aworld_train.evaluation.statistics import RIGHT, Scores

RESAMPLES = 10_000
_SEED = 20_260_101  # any; the same figures come out again
_CONFIDENCE = 0.95
_POWER = 0.8
_MAX_EXACT = 16  # differences of which all signs are tried


@dataclass(frozen=True)
class Difference:
    """The difference between two agents, the second minus the first.

    Attributes:
        tasks: Tasks that both have scores of.
        first: Average of the first.
        second: Average of the second.
        difference: ``second - first``.
        interval: Its 95 % interval: percentiles of a bootstrap over tasks.
        p_value: The chance of a difference at least as large if neither were better: McNemar's exact test with one
            attempt a task and scores of 0 and 1, else a permutation test of the signs of the tasks' differences.
        won: Tasks in which the second has the higher average.
        lost: Tasks in which it has the lower one.
        smallest: The smallest true difference that so many tasks with this spread would show in 8 of 10 measurements.
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


def compare(first: Scores, second: Scores) -> Difference:
    """Compare two agents in pairs.

    Raises:
        ValueError: They have no task in common.
    """
    common = [task for task in first if first[task] and second.get(task)]
    if not common:
        raise ValueError("no task has a score of both")
    pairs = [(fmean(first[task]), fmean(second[task])) for task in common]
    differences = [theirs - mine for mine, theirs in pairs]
    single = all(len(scores[task]) == 1 for task in common for scores in (first, second))
    binary = single and all(score in (0.0, RIGHT) for pair in pairs for score in pair)
    won, lost = sum(each > 0 for each in differences), sum(each < 0 for each in differences)
    return Difference(
        tasks=len(common),
        first=fmean(mine for mine, _ in pairs),
        second=fmean(theirs for _, theirs in pairs),
        difference=fmean(differences),
        interval=bootstrap_interval(differences),
        p_value=mcnemar(won, lost) if binary else sign_permutation(differences),
        won=won,
        lost=lost,
        smallest=smallest_difference(differences),
    )


def bootstrap_interval(values: Sequence[float], resamples: int = RESAMPLES) -> tuple[float, float]:
    """The 95 % percentile interval of the mean of values that are drawn again with replacement."""
    import numpy

    generator = numpy.random.default_rng(_SEED)
    array = numpy.asarray(values, float)
    means = numpy.sort(
        [array[generator.integers(0, len(array), len(array))].mean() for _ in range(resamples)]
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
    generator = random.Random(_SEED)
    extreme = 0
    for _ in range(resamples):
        bits = generator.getrandbits(len(values))
        total = math.fsum(each if bits >> place & 1 else -each for place, each in enumerate(values))
        extreme += abs(total) >= observed
    return (extreme + 1) / (resamples + 1)


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
