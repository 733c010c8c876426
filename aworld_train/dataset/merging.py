"""Finds the distinct tasks of a build, part by part, in final order.

Tasks of a reference dataset are left out, repeats are merged into the first of them, a repeat with another answer is
dropped, and near-duplicates are left out if the plan says so. Only positions are stored, no texts.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aworld_train.dataset.arrays import Mask, Numbers, as_integers, as_truths, numbers
from aworld_train.dataset.columns import Family, FamilyIndex
from aworld_train.dataset.dropped_rows import DropList
from aworld_train.dataset.exclusion import Reference
from aworld_train.dataset.external_sort import Spool, SpoolPart, digest_numbers
from aworld_train.dataset.matches import MatchKind, MatchVerdict
from aworld_train.dataset.progress import BuildProgress
from aworld_train.dataset.tasks import Dropped

CONFLICT = "same question with another answer"

MAX_EXAMPLES = 3

Near = Callable[[str, str], MatchVerdict | None]
"""Compares a question, given with its name, with others."""


@dataclass
class MergeCounts:
    """How many usable tasks were left out, and why; see `BuildReport`."""

    merged: int = 0
    against: int = 0
    near_duplicates: int = 0
    contained: int = 0
    figure_variants_left_out: int = 0
    figure_variants_kept: int = 0
    figure_variant_examples: list[Dropped] = field(default_factory=list)

    @property
    def left_out(self) -> int:
        compared = self.near_duplicates + self.contained + self.figure_variants_left_out
        return self.merged + self.against + compared


class DistinctTasks:
    def __init__(self, spool: Spool, families: FamilyIndex, folder: Path, progress: BuildProgress) -> None:
        self.counts = MergeCounts()
        self._spool, self._families, self._folder, self._progress = spool, families, folder, progress
        self._parts = 0

    def find(self, reference: Reference, near: Near | None, drops: DropList) -> None:
        families, reference_digests = self._families.listed(), reference.digests_array()
        self._folder.mkdir(parents=True, exist_ok=True)
        for number, part in enumerate(self._spool.parts()):
            kept = self._keep(part, families, reference_digests, near, drops)
            np.save(self._positions_file(number), kept)
            np.save(self._family_file(number), as_integers(part.batch.column("family"))[kept])
            self._parts = number + 1

    def families(self) -> Iterator[Numbers]:
        for number in range(self._parts):
            yield np.load(self._family_file(number))

    def batches(self) -> Iterator[tuple[pa.RecordBatch, Numbers]]:
        """Each part's batch and the positions of the distinct tasks in it, in final order."""
        for number, part in enumerate(self._spool.parts()):
            yield part.batch, np.load(self._positions_file(number))

    def _keep(
        self,
        part: SpoolPart,
        families: list[Family],
        reference_digests: pa.Array,
        near: Near | None,
        drops: DropList,
    ) -> Numbers:
        batch, order = part.batch, part.order
        order = order[~self._in_reference(batch, reference_digests)[order]]
        sorted_numbers = digest_numbers(batch)[order]
        repeats = np.zeros(len(order), dtype=bool)
        repeats[1:] = (sorted_numbers[1:] == sorted_numbers[:-1]).all(axis=1)
        if repeats.any():
            self._merge(batch, order, repeats, families, drops)
        kept = order[~repeats]
        if near is None:
            self._progress.rows += len(batch)
            return kept
        self._progress.rows += len(batch) - len(kept)
        return self._without_near(batch, kept, families, near, drops)

    def _in_reference(self, batch: pa.RecordBatch, reference_digests: pa.Array) -> Mask:
        in_reference = as_truths(pc.is_in(batch.column("digest"), value_set=reference_digests))
        self.counts.against += int(in_reference.sum())
        return in_reference

    def _merge(
        self, batch: pa.RecordBatch, order: Numbers, repeats: Mask, families: list[Family], drops: DropList
    ) -> None:
        # Each repeat's first task is the last one before it that is not a repeat.
        first = np.maximum.accumulate(np.where(repeats, 0, np.arange(len(order))))
        repeated, firsts = order[repeats], order[first[repeats]]
        answers = batch.column("answer")
        same_answer = as_truths(pc.equal(answers.take(numbers(repeated)), answers.take(numbers(firsts))))
        same_answer &= _same_lists(batch.column("ground_truths"), repeated, firsts)
        self.counts.merged += int(same_answer.sum())
        for position in repeated[~same_answer].tolist():
            drops.drop(_dropped(batch, position, families, CONFLICT))

    def _without_near(
        self, batch: pa.RecordBatch, kept: Numbers, families: list[Family], near: Near, drops: DropList
    ) -> Numbers:
        codes = batch.column("family").to_pylist()
        subjects, ids = batch.column("subject"), batch.column("id")
        distinct: list[int] = []
        for position in kept.tolist():
            self._progress.rows += 1
            if families[codes[position]].shared.is_question:
                verdict = near(subjects[position].as_py(), ids[position].as_py())
                if verdict is not None:
                    self._count(verdict)
                    if self._is_example(verdict):
                        example = _dropped(batch, position, families, str(verdict.match))
                        self.counts.figure_variant_examples.append(example)
                    if verdict.is_left_out:
                        drops.note(_dropped(batch, position, families, str(verdict.match)))
                        continue
            distinct.append(position)
        return np.array(distinct, dtype=np.int64)

    def _count(self, verdict: MatchVerdict) -> None:
        match verdict.match.kind:
            case MatchKind.near_duplicate:
                self.counts.near_duplicates += 1
            case MatchKind.contained:
                self.counts.contained += 1
            case MatchKind.figure_variant if verdict.is_left_out:
                self.counts.figure_variants_left_out += 1
            case MatchKind.figure_variant:
                self.counts.figure_variants_kept += 1

    def _is_example(self, verdict: MatchVerdict) -> bool:
        is_variant = verdict.match.kind is MatchKind.figure_variant
        return is_variant and len(self.counts.figure_variant_examples) < MAX_EXAMPLES

    def _positions_file(self, number: int) -> Path:
        return self._folder / f"{number}.kept.npy"

    def _family_file(self, number: int) -> Path:
        return self._folder / f"{number}.family.npy"


def _same_lists(lists: pa.Array, positions: Numbers, others: Numbers) -> Mask:
    if lists.null_count == len(lists):
        return np.ones(len(positions), dtype=bool)
    pairs = zip(
        lists.take(numbers(positions)).to_pylist(), lists.take(numbers(others)).to_pylist(), strict=True
    )
    return np.array([one == other for one, other in pairs], dtype=bool)


def _dropped(batch: pa.RecordBatch, position: int, families: list[Family], reason: str) -> Dropped:
    row: dict[str, Any] = batch.slice(position, 1).to_pylist()[0]
    return Dropped(families[row["family"]].shared.file, row["line"], row["subject"], reason)
