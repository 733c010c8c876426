"""An index of sets of hashes, to find those that share nearly all with another set, or nearly all of it.

This is prefix filtering (Chaudhuri et al., 2006; Bayardo et al., 2007): where at most m of a set's members are missing
in another set, that one has one of any m + 1 of them. The rarest are chosen, so hashes are known by their ranks.
"""

import numpy as np

from aworld_train.dataset.arrays import Numbers

UNKNOWN = -1
"""The rank of a hash that no set has."""

_NONE = np.zeros(0, dtype=np.int32)


class RankedSets:
    """Sets of hashes that are all known from the start, in about 30 bytes for each member."""

    def __init__(self, hashes: Numbers, ends: Numbers, max_missing: Numbers) -> None:
        """``hashes`` are the members of all sets, as uint64, set after set; ``ends`` is where they begin and end.

        ``max_missing``: how many members of each set may be missing in one that has nearly all of it, [sets].
        """
        self._ends = ends
        self._vocabulary, ids, counts = np.unique(hashes, return_inverse=True, return_counts=True)
        self._ranks = np.empty(len(counts), dtype=np.int32)
        self._ranks[np.argsort(counts, kind="stable")] = np.arange(len(counts), dtype=np.int32)
        del counts
        sizes = np.diff(ends)
        owners = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
        # Sorted by set, and in each set by rank.
        members = owners.astype(np.int64) << 32 | self._ranks[ids]
        del ids
        members.sort()
        self._members = (members & 0xFFFFFFFF).astype(np.int32)
        del members
        is_rare = np.arange(len(owners)) <= np.repeat(ends[:-1] + max_missing, sizes)
        self._sets_by_rare_rank = _Postings(self._members[is_rare], owners[is_rare], len(self._vocabulary))
        self._sets_by_rank = _Postings(self._members, owners, len(self._vocabulary))
        self._is_sought = np.zeros(len(self._vocabulary), dtype=bool)

    def ranks(self, hashes: Numbers) -> Numbers:
        """The rank of each hash, or `UNKNOWN`."""
        if not len(self._vocabulary):
            return np.full(len(hashes), UNKNOWN)
        positions = np.searchsorted(self._vocabulary, hashes)
        positions[positions == len(self._vocabulary)] = 0
        return np.where(self._vocabulary[positions] == hashes, self._ranks[positions], UNKNOWN)

    def candidates(self, ranks: Numbers, unknown: int, max_missing: int) -> Numbers:
        """The numbers of the sets that may have nearly all of another set, or it nearly all of them.

        ``ranks`` are those of its known members in ascending order; it has ``unknown`` ones besides.
        """
        rarest = ranks[: max(0, max_missing + 1 - unknown)]
        return np.unique(
            np.concatenate(
                [*self._sets_by_rare_rank.having(ranks), *self._sets_by_rank.having(rarest), _NONE]
            )
        )

    def shared(self, numbers: Numbers, ranks: Numbers) -> Numbers:
        """How many members of each of the sets have one of the ranks, [numbers]."""
        if not len(numbers):
            return np.zeros(0, dtype=np.int64)
        starts, sizes = self._ends[numbers], self._ends[numbers + 1] - self._ends[numbers]
        firsts = np.cumsum(sizes) - sizes
        members = self._members[np.arange(sizes.sum()) + np.repeat(starts - firsts, sizes)]
        self._is_sought[ranks] = True
        shared = np.add.reduceat(self._is_sought[members], firsts, dtype=np.int64)
        self._is_sought[ranks] = False
        return shared

    def members(self, number: int) -> Numbers:
        return self._members[self._ends[number] : self._ends[number + 1]]


class _Postings:
    def __init__(self, ranks: Numbers, owners: Numbers, rank_count: int) -> None:
        self._starts = np.zeros(rank_count + 1, dtype=np.int32)
        self._starts[1:] = np.cumsum(np.bincount(ranks, minlength=rank_count))
        self._owners = owners[np.argsort(ranks, kind="stable")]

    def having(self, ranks: Numbers) -> list[Numbers]:
        starts, ends = self._starts[ranks], self._starts[ranks + 1]
        present = ends > starts
        bounds = zip(starts[present].tolist(), ends[present].tolist(), strict=True)
        return [self._owners[start:end] for start, end in bounds]
