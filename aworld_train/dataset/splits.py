"""Splits: tasks in the order of a keyed hash, cut at the given fractions.

The order depends on the seed and on each task itself, never on its place in a file. So a split is a random sample,
every prefix of it is one too, and no task can be in two splits.
"""

import math
import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import accumulate

import numpy as np

from aworld_train.dataset.arrays import Numbers
from aworld_train.dataset.mix import GroupCounter
from aworld_train.errors import UsageError

DEFAULT_SPLITS = {"train": 0.9, "val": 0.1}

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_EXAMPLE = "For example: --split train=0.9 --split val=0.1"


def parse_splits(texts: Sequence[str]) -> dict[str, float] | None:
    """Fractions by name from ``name=fraction`` texts, each one or several with commas or spaces; None without any."""
    splits: dict[str, float] = {}
    for entry in filter(None, re.split(r"[\s,]+", " ".join(texts))):
        name, equals, number = entry.partition("=")
        try:
            fraction = float(number)
        except ValueError:
            equals = ""
        if not equals:
            raise UsageError(f"--split {entry!r} is not name=fraction. {_EXAMPLE}")
        if name in splits:
            raise UsageError(f"The split {name!r} is given twice. {_EXAMPLE}")
        splits[name] = fraction
    return splits or None


def check_splits(splits: Mapping[str, float]) -> None:
    if not splits:
        raise UsageError(f"No split is asked for. {_EXAMPLE}")
    for name, fraction in splits.items():
        if not _NAME.fullmatch(name):
            raise UsageError(f"{name!r} cannot name a split: use letters, digits, '-' and '_'. {_EXAMPLE}")
        if not (math.isfinite(fraction) and 0 < fraction <= 1):
            raise UsageError(
                f"The split {name!r} asks for {fraction} of the tasks; give more than 0, at most 1."
            )
    total = math.fsum(splits.values())
    if total > 1 + 1e-9:
        raise UsageError(f"The splits add up to {total:g}; together they can have at most 1. {_EXAMPLE}")


def cut(counts: Sequence[int], splits: Mapping[str, float]) -> list[list[int]]:
    """Where each split ends in each stratum, [strata][splits]; tasks that are left over come last.

    Every split has its fraction of every stratum, and of all tasks together: the rounding errors of strata cancel out.
    """
    totals, total = [], Fraction(0)
    for fraction in splits.values():
        total += Fraction(str(fraction))
        totals.append(total)
    ends, before = [], 0
    for count in counts:
        # The ends in all strata up to this one, minus the ends in those before it.
        stratum = [round((before + count) * share) - round(before * share) for share in totals]
        ends.append([min(count, end) for end in accumulate(stratum, max)])
        before += count
    return ends


class SplitAssignment:
    """Assigns the taken tasks to splits, in final order."""

    def __init__(self, ends: Sequence[Sequence[int]]) -> None:
        self._ends = np.array(ends, dtype=np.int64)
        self._ranks = GroupCounter()

    def assign(self, strata: Numbers) -> Numbers:
        """The split number of each of the next tasks, by their strata; left-over tasks get the number of splits."""
        ranks = self._ranks.next(strata)
        split_numbers: Numbers = (ranks[:, None] >= self._ends[strata]).sum(axis=1)
        return split_numbers
