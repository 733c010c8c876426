"""Near-duplicates: questions that equal an earlier one except for a word or a comma.

MinHash finds the few earlier texts that may be similar (`rensa`, in Rust), and only these are compared, by the exact
Jaccard similarity of their shingles, so no text is wrongly called a near-duplicate. One can be missed: the bands of the
index are chosen so that 98 of 100 pairs just at the threshold are found, and nearly all above it. Hashing has a fixed
seed, so the same texts in the same order give the same result on every machine.

Every shingle contains the figures of its text. Otherwise the thousands of problems that are made from one template
would all be candidates for each other. Texts with the same words and other figures are found in a table.

A text is remembered by its name, eight bytes for each shingle (at most 16 KB) and about 1.5 KB in the index. An exact
self-join with DuckDB or polars found the same near-duplicates among 200,000 questions and took 8 to 14 times as long.
"""

from array import array
from collections.abc import Sequence
from hashlib import blake2b
from math import ceil, log, log1p

from rensa import RMinHash, RMinHashLSH

from aworld_train.dataset.matches import THRESHOLD, MatchKind, QuestionMatch
from aworld_train.dataset.shingles import MIN_WORDS, Shingles

MAX_SHINGLES = 2048

_FOUND_AT_THRESHOLD = 0.98
_MAX_SLOTS = 128
_SEED = 42


class NearDuplicates:
    """An index of the texts so far, which finds those that another text nearly equals.

    Use it with questions, not with prompts: texts that share a template longer than their own words are all candidates
    for each other. Of texts with `MAX_SHINGLES` shingles (about 2,000 words) or more only those with the smallest
    hashes are compared; the similarity then has a standard error of about 0.01.
    """

    def __init__(self, threshold: float = THRESHOLD, *, drop_variants: bool = False) -> None:
        self.threshold = threshold
        self._drop_variants = drop_variants
        bands, slots = _bands(threshold)
        self._slots = bands * slots
        self._index = RMinHashLSH(threshold, self._slots, bands)
        self._names: list[str] = []
        self._hashes = array("Q")
        self._ends = array("Q", [0])
        self._by_words: dict[bytes, str] = {}

    def seen(self, shingles: Shingles, name: str) -> QuestionMatch | None:
        """The most similar earlier text, or else the first one that has the same words and other figures.

        Of equally similar ones it is the earliest. A text is remembered under its name unless it is left out.
        """
        if not shingles.padded:
            return None
        salted = _salted(shingles)
        hashes, sketch = _hashes(salted), self._sketch(salted)
        match = self._nearest(hashes, sketch)
        if match is not None:
            return match
        words = _digest(shingles.line)
        if shingles.words >= MIN_WORDS and words in self._by_words:
            match = QuestionMatch(MatchKind.figure_variant, self._by_words[words], 1.0)
        if match is None or not self._drop_variants:
            self._remember(hashes, sketch, name)
            self._by_words.setdefault(words, name)
        return match

    def _nearest(self, hashes: set[int], sketch: RMinHash) -> QuestionMatch | None:
        candidates = [
            (self._similarity(hashes, position), -position) for position in self._index.query(sketch)
        ]
        similarity, position = max(candidates, default=(0.0, 0))
        if similarity < self.threshold:
            return None
        return QuestionMatch(MatchKind.near_duplicate, self._names[-position], similarity)

    def _similarity(self, hashes: set[int], position: int) -> float:
        start, end = self._ends[position], self._ends[position + 1]
        few, many = sorted((len(hashes), end - start))
        # Sizes that differ this much rule out the threshold; most false candidates end here.
        return _jaccard(hashes, self._hashes[start:end]) if few >= self.threshold * many else 0.0

    def _remember(self, hashes: set[int], sketch: RMinHash, name: str) -> None:
        self._index.insert(len(self._names), sketch)
        self._names.append(name)
        self._hashes.extend(hashes)
        self._ends.append(len(self._hashes))

    def _sketch(self, shingle_list: list[str]) -> RMinHash:
        sketch = RMinHash(self._slots, _SEED)
        sketch.update(shingle_list)
        return sketch


def _salted(shingles: Shingles) -> list[str]:
    salt = _digest(shingles.figures).hex()
    return [f"{salt} {shingle}" for shingle in set(shingles.padded)]


def _digest(text: str) -> bytes:
    return blake2b(text.encode(), digest_size=8).digest()


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

    Texts are candidates when all slots of a band agree, each with a probability equal to their similarity (Leskovec et
    al., Mining of Massive Datasets, 3.4).
    """
    for slots in range(_MAX_SLOTS, 0, -1):
        agree = min(threshold, 0.999) ** slots
        bands = ceil(log(1 - _FOUND_AT_THRESHOLD) / log1p(-agree))
        if bands * slots <= _MAX_SLOTS:
            return bands, slots
    raise AssertionError("at the lowest threshold bands of one slot are enough")
