"""Contamination: questions of an evaluation set in training data, alone or inside a longer text.

Two texts match when the longer one has four fifths of the shorter one's shingles: the question after a preface, before
a hint or its answer, or beside another question, and also a question without the instructions that an evaluation puts
around it. A text of less than `MIN_WORDS` words matches only a similar one. The search is exact.

Texts with the same words and other figures are a kind of their own, figure variants. They are left out where the other
is of an evaluation set, because who has seen one knows how the other is solved, and stay where it is of the build; a
plan can decide otherwise for both. Questions that share all their words are compared once.

Shingles that more than half of an evaluation set has are instructions of its prompts, and do not count. Otherwise a
short question with long instructions would be found in each text that has these.
"""

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rensa import RMinHash

from aworld_train.dataset.arrays import Numbers
from aworld_train.dataset.exclusion import subjects
from aworld_train.dataset.matches import THRESHOLD, FigureVariants, MatchKind, MatchVerdict, QuestionMatch
from aworld_train.dataset.near_duplicates import NearDuplicates
from aworld_train.dataset.prefix_filter import UNKNOWN, RankedSets
from aworld_train.dataset.shingles import MIN_WORDS, Shingles, shingles
from aworld_train.dataset.tasks import TaskKind

_PADDED = 2
"""Shingles with padding at an end of a text. The outermost one without padding stands for them too, so that a word at
an end counts as much as another."""
_MIN_SHINGLES = MIN_WORDS - _PADDED
"""Least shingles without padding of a text that is found inside another."""
_MIN_QUESTIONS = 6
_KINDS = list(MatchKind)
_NO_HASH = np.uint64(0)


class QuestionComparison:
    def __init__(
        self, evaluation_files: Sequence[Path], dedupe: bool, figure_variants: FigureVariants | None
    ) -> None:
        """Read the questions of the evaluation sets; with ``dedupe`` those of the build are remembered, one by one."""
        self._drops_evaluation_variants = figure_variants is not FigureVariants.keep
        self._drops_variants = figure_variants is FigureVariants.drop
        self._evaluation = EvaluationQuestions(map(_questions, evaluation_files))
        self._near = NearDuplicates(drop_variants=self._drops_variants) if dedupe else None

    def compare(self, text: str, name: str) -> MatchVerdict | None:
        """Compare a question of the build, which has the name for later ones; None where it matches no other."""
        question = shingles(text)
        match = self._evaluation.match(question)
        verdict = match and _verdict(match, self._drops_evaluation_variants)
        if self._near is None or (verdict and verdict.is_left_out):
            return verdict
        match = self._near.seen(question, name)
        return _verdict(match, self._drops_variants) if match else verdict


def _questions(file: Path) -> Iterator[tuple[str, str]]:
    for subject in subjects([file]):
        if subject.kind is TaskKind.question:
            yield subject.text, f"{file.name}, row {subject.row}"


def _verdict(match: QuestionMatch, drops_variants: bool) -> MatchVerdict:
    return MatchVerdict(match, drops_variants or match.kind is not MatchKind.figure_variant)


class EvaluationQuestions:
    def __init__(self, sets: Iterable[Iterable[tuple[str, str]]]) -> None:
        hashes, ends = array("Q"), array("Q", [0])
        instructions = [np.zeros(0, dtype=np.uint64)]
        self._numbers: dict[bytes, int] = {}
        self._words: list[int] = []
        self._names: list[dict[str, str]] = []
        """Of the questions that share all their words, the names by their figures."""
        for questions in sets:
            start = len(self._names)
            for text, name in questions:
                question = shingles(text)
                number = self._numbers.setdefault(_words(question), len(self._names))
                if number == len(self._names):
                    hashes.extend(_hashes(question))
                    ends.append(len(hashes))
                    self._words.append(question.words)
                    self._names.append({})
                self._names[number].setdefault(question.figures, name)
            bounds = np.array(ends[start:], dtype=np.int64)
            instructions.append(
                _instructions(np.array(hashes[ends[start] :], dtype=np.uint64), bounds - bounds[0])
            )
        self._instructions = np.unique(np.concatenate(instructions))
        distinctive, bounds = _without(
            _unsigned(hashes), _unsigned(ends).astype(np.int64), self._instructions
        )
        self._sizes = np.diff(bounds) + 2 * _PADDED
        self._sets = RankedSets(distinctive, bounds, _max_missing(self._sizes))
        # The first and the last of each; those of a question with nothing but instructions are never looked at.
        places = np.stack([bounds[:-1], bounds[1:] - 1], axis=1).ravel()
        self._outermost = self._sets.ranks(np.append(distinctive, _NO_HASH)[places]).reshape(-1, 2)

    def match(self, text: Shingles) -> QuestionMatch | None:
        """The question that matches best: the closest kind, of that the largest share, and of these the first."""
        if not self._names or not text.inner:
            return None
        number = self._numbers.get(_words(text))
        if number is not None and text.figures in self._names[number]:
            return QuestionMatch(MatchKind.near_duplicate, self._names[number][text.figures], 1.0)
        hashes = np.array(_hashes(text), dtype=np.uint64)
        if len(self._instructions):
            hashes, _ = _without(hashes, np.array([0, len(hashes)]), self._instructions)
        if not len(hashes):
            return None
        ranks = self._sets.ranks(hashes)
        known = np.sort(ranks[ranks != UNKNOWN])
        distinct = len(hashes)
        size = distinct + 2 * _PADDED
        numbers = self._sets.candidates(known, distinct - len(known), _max_missing(np.array(size)).item())
        shared = self._sets.shared(numbers, known)
        is_near = shared + 2 * _PADDED >= THRESHOLD * np.minimum(self._sizes[numbers], size)
        if not is_near.any():
            return None
        text_ranks = ranks.tolist()
        side = _Side(text, size, set(text_ranks), (text_ranks[0], text_ranks[-1]))
        matches = [
            self._match(side, number, count)
            for number, count in zip(numbers[is_near].tolist(), shared[is_near].tolist(), strict=True)
        ]
        return min(
            (match for match in matches if match),
            key=lambda match: (_KINDS.index(match.kind), -match.share),
            default=None,
        )

    def _match(self, side: "_Side", number: int, shared: int) -> QuestionMatch | None:
        """The match of a text with one question, by the number of shingles without padding that they share."""
        text, size = side.text, int(self._sizes[number])
        is_shorter = size <= side.size
        if is_shorter:
            shared += _PADDED * sum(rank in side.ranks for rank in self._outermost[number].tolist())
            words = self._words[number]
        else:
            members = set(self._sets.members(number).tolist())
            shared += _PADDED * sum(rank in members for rank in side.outermost)
            words = text.words
        smaller = min(size, side.size)
        share, similarity = shared / smaller, shared / (size + side.size - shared)
        names = self._names[number]
        if similarity >= THRESHOLD and text.figures in names:
            return QuestionMatch(MatchKind.near_duplicate, names[text.figures], similarity)
        if share < THRESHOLD or words < MIN_WORDS or smaller < _MIN_SHINGLES + 2 * _PADDED:
            return None
        name = _with_figures(text.figures, names, is_shorter)
        if name is not None:
            return QuestionMatch(MatchKind.contained, name, share)
        return QuestionMatch(MatchKind.figure_variant, next(iter(names.values())), share)


class _Side(NamedTuple):
    text: Shingles
    size: int
    ranks: set[int]
    outermost: tuple[int, int]


def _with_figures(figures: str, names: Mapping[str, str], is_shorter: bool) -> str | None:
    """The name of the one, among questions with the same words, that has the figures of a text.

    The longer of the two has the figures of the shorter one in a row, and maybe others before and after them.
    """
    if not is_shorter:
        matching = (name for other, name in names.items() if f" {figures} " in f" {other} ")
        return next(matching if figures else iter(names.values()), None)
    listed = figures.split()
    length = len(next(iter(names)).split())
    rows = (" ".join(listed[start : start + length]) for start in range(len(listed) - length + 1))
    return next((names[row] for row in rows if row in names), None)


def _max_missing(sizes: Numbers) -> Numbers:
    """How many shingles without padding may be missing in a longer text, by the size with padding."""
    return np.floor(sizes * (1 - THRESHOLD) + 1e-9).astype(np.int64)


def _instructions(hashes: Numbers, bounds: Numbers) -> Numbers:
    """The shingles that more than half of the texts have; none where without them little of most texts would remain.

    There the texts have a form in common, and what they have in common is a part of the question.
    """
    distinct, counts = np.unique(hashes, return_counts=True)
    frequent = distinct[(counts >= _MIN_QUESTIONS) & (2 * counts >= len(bounds))]
    if not len(frequent):
        return frequent
    _, remaining = _without(hashes, bounds, frequent)
    return frequent if np.median(np.diff(remaining)) >= _MIN_SHINGLES else frequent[:0]


def _without(hashes: Numbers, bounds: Numbers, instructions: Numbers) -> tuple[Numbers, Numbers]:
    is_instruction = np.isin(hashes, instructions)
    owners = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
    is_left_out = is_instruction.copy()
    # Shingles that overlap with those of instructions have words of both.
    for distance in range(1, _PADDED + 1):
        is_neighbour = owners[distance:] == owners[:-distance]
        is_left_out[distance:] |= is_instruction[:-distance] & is_neighbour
        is_left_out[:-distance] |= is_instruction[distance:] & is_neighbour
    counts = np.concatenate([[0], np.cumsum(~is_left_out)])
    return hashes[~is_left_out], counts[bounds]


def _words(text: Shingles) -> bytes:
    return blake2b(text.line.encode(), digest_size=8).digest()


def _hashes(text: Shingles) -> list[int]:
    hashes: list[int] = RMinHash.hash_token_sets([list(dict.fromkeys(text.inner))])[0]
    return hashes


def _unsigned(values: "array[int]") -> Numbers:
    return np.frombuffer(values, dtype=np.uint64)
