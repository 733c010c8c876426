"""How many tasks each source gives: as many as the weights allow without repeating a task."""

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from aworld_train.dataset.arrays import Mask, Numbers
from aworld_train.errors import DatasetError, UsageError

_ALL = np.iinfo(np.int64).max


def check_weights(weights: Sequence[tuple[str, float | None]]) -> None:
    without = [name for name, weight in weights if weight is None]
    if without and len(without) < len(weights):
        raise UsageError(
            f"The source {without[0]} has no weight and others have; give a weight to each, or to none to take "
            "everything."
        )
    for name, weight in weights:
        if weight is not None and not (math.isfinite(weight) and weight > 0):
            raise UsageError(f"The weight of the source {name} is {weight}; give a number above 0.")


def quotas(available: Sequence[int], weights: Sequence[float], limit: int | None) -> list[int]:
    if 0 in available:
        raise DatasetError(
            f"Source {available.index(0) + 1} of the mix has no task left, so its weight cannot be kept. "
            "Take it out, or give it more input."
        )
    weight_fractions = [Fraction(str(weight)) for weight in weights]
    total = sum(weight_fractions, Fraction(0))
    max_rows = min(count * total / weight for count, weight in zip(available, weight_fractions, strict=True))
    rows = max_rows if limit is None else min(max_rows, Fraction(limit))
    shares = [rows * weight / total for weight in weight_fractions]
    counts = [math.floor(share) for share in shares]
    # Rounding each share to the nearest number could exceed the limit, so the largest remainders are rounded up.
    by_rounding_loss = sorted(range(len(shares)), key=lambda source: counts[source] - shares[source])
    for source in by_rounding_loss[: math.floor(sum(shares)) - sum(counts)]:
        counts[source] += 1
    return counts


class Selection:
    """Decides which tasks are taken, in final order; without ``quotas`` of sources the first ``limit`` of all."""

    def __init__(
        self, source_of_family: Sequence[int], quotas: Sequence[int] | None, limit: int | None
    ) -> None:
        if quotas is None:
            source_of_family, quotas = [0] * len(source_of_family), [_ALL if limit is None else limit]
        self._sources = np.array(source_of_family, dtype=np.int64)
        self._quotas = np.array(quotas, dtype=np.int64)
        self._ranks = GroupCounter()

    def take(self, families: Numbers) -> Mask:
        sources = self._sources[families]
        selected: Mask = self._ranks.next(sources) < self._quotas[sources]
        return selected


class GroupCounter:
    """Counts within groups: the rank of each item in its group, from 0."""

    def __init__(self) -> None:
        self._counts = np.zeros(0, dtype=np.int64)

    def next(self, groups: Numbers) -> Numbers:
        top = int(groups.max(initial=-1)) + 1
        if top > len(self._counts):
            self._counts = np.pad(self._counts, (0, top - len(self._counts)))
        order = np.argsort(groups, kind="stable")
        sizes = np.bincount(groups, minlength=len(self._counts))
        starts = np.cumsum(sizes) - sizes
        ranks = np.empty(len(groups), dtype=np.int64)
        ranks[order] = np.arange(len(groups)) - starts[groups[order]]
        ranks += self._counts[groups]
        self._counts = self._counts + sizes
        return ranks
