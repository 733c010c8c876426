"""Near-duplicates: questions that equal an earlier one except for a word or a comma.

MinHash finds the few earlier texts that may be similar (`rensa`, in Rust), and only these are compared, by the exact
Jaccard similarity of their shingles, so no text is wrongly called a near-duplicate. One can be missed: the bands of the
index are chosen so that 98 of 100 pairs just at the threshold are found, and nearly all above it. Hashing has a fixed
seed, so the same texts in the same order give the same result on every machine.

A text is remembered by its name, eight bytes for each shingle (at most 16 KB) and about 1.3 KB in the index, without
its words: 200,000 questions of 300 characters take about 400 MB.

An exact self-join on the shingles, without rensa, found the same 5,907 near-duplicates among 200,000 generated
questions of 35 to 60 words. It took longer (two cores): 16 s with DuckDB 2.0.0 limited to 500 MB, and 29 s and 5.2 GiB
with polars 2.1.0, against 2 s with rensa 0.5.0; making the shingles takes another 10 s in each case.
"""

from array import array
from collections.abc import Sequence
from math import ceil, log, log1p

from rensa import RMinHash, RMinHashLSH

from aworld_train.dataset.shingles import shingles
from aworld_train.errors import UsageError

MIN_THRESHOLD = 0.3
MAX_SHINGLES = 2048

_FOUND_AT_THRESHOLD = 0.98
_MAX_SLOTS = 128
_SEED = 42


class NearDuplicates:
    """An index of the references and of the texts so far, which finds near-duplicates of another text.

    Use it with questions, not with prompts: texts that share a template longer than their own words are all candidates
    for each other, so that each text takes longer the more there are.

    Of texts with `MAX_SHINGLES` shingles (about 2,000 words) or more, only that many are compared, those with the
    smallest hashes; the similarity then has a standard error of about 0.01. For all other texts it is exact.
    """

    def __init__(self, threshold: float = 0.8) -> None:
        """An index without texts.

        Args:
            threshold: Least Jaccard similarity of near-duplicates, from 0.3 to 1.

        Raises:
            UsageError: The threshold is outside.
        """
        if not MIN_THRESHOLD <= threshold <= 1:
            raise UsageError(
                f"The similarity {threshold} of near-duplicates is not between {MIN_THRESHOLD} and 1; 0.8 is usual."
            )
        self.threshold = threshold
        bands, slots = _bands(threshold)
        self._slots = bands * slots
        self._index = RMinHashLSH(threshold, self._slots, bands)
        self._names: list[str] = []
        self._hashes = array("Q")
        self._ends = array("Q", [0])

    def add_reference(self, text: str, name: str) -> None:
        """Remember a text, such as one of an evaluation set, even if it is similar to another."""
        shingle_list = shingles(text)
        self._remember(_hashes(shingle_list), self._sketch(shingle_list), name)

    def match(self, text: str) -> tuple[str, float] | None:
        """The name and similarity of the most similar remembered text; None where none reaches the threshold.

        Of equally similar ones it is the earliest. The text itself is not remembered.
        """
        shingle_list = shingles(text)
        return self._nearest(_hashes(shingle_list), self._sketch(shingle_list))

    def seen(self, text: str, name: str) -> tuple[str, float] | None:
        """As `match`, but a text without a near-duplicate is remembered under its name."""
        shingle_list = shingles(text)
        hashes, sketch = _hashes(shingle_list), self._sketch(shingle_list)
        match = self._nearest(hashes, sketch)
        if match is None:
            self._remember(hashes, sketch, name)
        return match

    def _nearest(self, hashes: set[int], sketch: RMinHash) -> tuple[str, float] | None:
        if not hashes:
            return None
        candidates = [
            (self._similarity(hashes, position), -position) for position in self._index.query(sketch)
        ]
        similarity, position = max(candidates, default=(0.0, 0))
        return (self._names[-position], similarity) if similarity >= self.threshold else None

    def _similarity(self, hashes: set[int], position: int) -> float:
        start, end = self._ends[position], self._ends[position + 1]
        few, many = sorted((len(hashes), end - start))
        # Sizes that differ this much rule out the threshold; most false candidates end here.
        return _jaccard(hashes, self._hashes[start:end]) if few >= self.threshold * many else 0.0

    def _remember(self, hashes: set[int], sketch: RMinHash, name: str) -> None:
        if not hashes:
            return
        self._index.insert(len(self._names), sketch)
        self._names.append(name)
        self._hashes.extend(hashes)
        self._ends.append(len(self._hashes))

    def _sketch(self, shingle_list: list[str]) -> RMinHash:
        sketch = RMinHash(self._slots, _SEED)
        sketch.update(shingle_list)
        return sketch


def _jaccard(left: set[int], right: Sequence[int]) -> float:
    """Shared hashes divided by all hashes; where a side is cut to its smallest, only the smallest of both count."""
    if max(len(left), len(right)) < MAX_SHINGLES:
        shared = len(left.intersection(right))
        return shared / (len(left) + len(right) - shared)
    smallest = sorted(left.union(right))[:MAX_SHINGLES]
    return len(left.intersection(right, smallest)) / len(smallest)


def _hashes(shingle_list: list[str]) -> set[int]:
    hashes = RMinHash.hash_token_sets([shingle_list])[0]
    return set(hashes if len(hashes) <= MAX_SHINGLES else sorted(hashes)[:MAX_SHINGLES])


def _bands(threshold: float) -> tuple[int, int]:
    """Number of bands of an index and of slots per band: the most slots that still find enough.

    Two texts are candidates when all slots of a band agree; each slot agrees with a probability equal to their
    similarity (Leskovec et al., Mining of Massive Datasets, 3.4). More slots per band give fewer false candidates.
    """
    for slots in range(_MAX_SLOTS, 0, -1):
        agree = min(threshold, 0.999) ** slots
        bands = ceil(log(1 - _FOUND_AT_THRESHOLD) / log1p(-agree))
        if bands * slots <= _MAX_SLOTS:
            return bands, slots
    raise AssertionError("at the lowest threshold bands of one slot are enough")
