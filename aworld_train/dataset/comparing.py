"""Compares each question of a build with those of evaluation sets and with the earlier ones of the build.

Figure variants have the same words as another question and other figures. They are left out where the other is of an
evaluation set, because who has seen one knows how the other is solved, and stay where it is of the build, because they
are tasks with an answer of their own. A plan can decide otherwise for both.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from aworld_train.dataset.contamination import EvaluationQuestions
from aworld_train.dataset.exclusion import subjects
from aworld_train.dataset.matches import FigureVariants, Match, MatchKind
from aworld_train.dataset.near_duplicates import NearDuplicates
from aworld_train.dataset.shingles import shingles
from aworld_train.dataset.tasks import TaskKind


class Verdict(NamedTuple):
    """What a question matches, and whether it is left out for it."""

    match: Match
    is_left_out: bool


class Comparison:
    """The questions that those of a build are compared with."""

    def __init__(
        self, evaluation_files: Sequence[Path], dedupe: bool, figure_variants: FigureVariants | None
    ) -> None:
        """Read the questions of the evaluation sets; with ``dedupe`` those of the build are remembered, one by one."""
        self._drops_evaluation_variants = figure_variants is not FigureVariants.keep
        self._drops_variants = figure_variants is FigureVariants.drop
        self._evaluation = EvaluationQuestions(map(_questions, evaluation_files))
        self._near = NearDuplicates(drop_variants=self._drops_variants) if dedupe else None

    def compare(self, text: str, name: str) -> Verdict | None:
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


def _verdict(match: Match, drops_variants: bool) -> Verdict:
    return Verdict(match, drops_variants or match.kind is not MatchKind.figure_variant)
