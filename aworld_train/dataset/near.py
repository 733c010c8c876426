"""Near-duplicates: questions that are an earlier one over again but for a word or a comma.

MinHash finds the few earlier texts that may be alike (`rensa`, in Rust), and these alone are compared, by the
true Jaccard similarity of their shingles: what is called a near-duplicate is one. What can happen is that one is
missed; the bands of the index are chosen so that of pairs just at the threshold 98 in 100 are found, and
above it nearly all. Nothing here is drawn at random, so the same texts in the same order give the same answer
on every machine.

A text is remembered by its name, eight bytes for each shingle (at most 16 KB) and some 1.3 KB in the index,
its words are not kept: 200,000 questions of 300 characters take about 400 MB.
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
    """The texts seen so far and the references, asked for one that is nearly equal to another.

    Ask with questions, not with prompts: texts that share a template of more words than their own must all be
    compared with one another, and each takes the longer the more there are.

    Of texts with `MAX_SHINGLES` shingles (some 2,000 words) or more, that many are compared, chosen by their
    hashes, alike in both: the similarity has a standard error of about 0.01. Of all others it is exact.
    """

    def __init__(self, threshold: float = 0.8) -> None:
        """Start with no text.

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
        bands, rows = _bands(threshold)
        self._slots = bands * rows
        self._index = RMinHashLSH(threshold, self._slots, bands)
        self._names: list[str] = []
        self._hashes = array("Q")
        self._ends = array("Q", [0])

    def add_reference(self, text: str, name: str) -> None:
        """Remember a text, such as one of an evaluation set, whatever it is similar to."""
        runs = shingles(text)
        self._remember(_hashes(runs), self._sketch(runs), name)

    def match(self, text: str) -> tuple[str, float] | None:
        """The name of the most similar text that is remembered, and how similar it is; None where none is near.

        Of equally similar ones it is the earliest. The text itself is not remembered.
        """
        runs = shingles(text)
        return self._nearest(_hashes(runs), self._sketch(runs))

    def seen(self, text: str, name: str) -> tuple[str, float] | None:
        """As `match`, but a text that is near to none is remembered under its name."""
        runs = shingles(text)
        hashes, sketch = _hashes(runs), self._sketch(runs)
        found = self._nearest(hashes, sketch)
        if found is None:
            self._remember(hashes, sketch, name)
        return found

    def _nearest(self, hashes: set[int], sketch: RMinHash) -> tuple[str, float] | None:
        if not hashes:
            return None
        alike = [(self._similarity(hashes, row), -row) for row in self._index.query(sketch)]
        similarity, row = max(alike, default=(0.0, 0))
        return (self._names[-row], similarity) if similarity >= self.threshold else None

    def _similarity(self, hashes: set[int], row: int) -> float:
        start, end = self._ends[row], self._ends[row + 1]
        few, many = sorted((len(hashes), end - start))
        # Not even if all of the one were in the other; most of the candidates that chance brings go here.
        return _jaccard(hashes, self._hashes[start:end]) if few >= self.threshold * many else 0.0

    def _remember(self, hashes: set[int], sketch: RMinHash, name: str) -> None:
        if not hashes:
            return
        self._index.insert(len(self._names), sketch)
        self._names.append(name)
        self._hashes.extend(hashes)
        self._ends.append(len(self._hashes))

    def _sketch(self, runs: list[str]) -> RMinHash:
        sketch = RMinHash(self._slots, _SEED)
        sketch.update(runs)
        return sketch


def _jaccard(left: set[int], right: Sequence[int]) -> float:
    """Shared hashes by all hashes; where a side may hold only its smallest, by the smallest of both."""
    if max(len(left), len(right)) < MAX_SHINGLES:
        shared = len(left.intersection(right))
        return shared / (len(left) + len(right) - shared)
    smallest = sorted(left.union(right))[:MAX_SHINGLES]
    return len(left.intersection(right, smallest)) / len(smallest)


def _hashes(runs: list[str]) -> set[int]:
    hashes = RMinHash.hash_token_sets([runs])[0]
    return set(hashes if len(hashes) <= MAX_SHINGLES else sorted(hashes)[:MAX_SHINGLES])


def _bands(threshold: float) -> tuple[int, int]:
    """How many bands, of how many slots each, an index has: the most slots that still find enough.

    Texts meet in the index when all slots of one band agree, in which they agree with the probability of their
    similarity (Leskovec et al., Mining of Massive Datasets, 3.4); more slots to a band bring fewer by chance.
    """
    for rows in range(_MAX_SLOTS, 0, -1):
        agree = min(threshold, 0.999) ** rows
        bands = ceil(log(1 - _FOUND_AT_THRESHOLD) / log1p(-agree))
        if bands * rows <= _MAX_SLOTS:
            return bands, rows
    raise AssertionError("at the least threshold some bands of one slot are enough")
