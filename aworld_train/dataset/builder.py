"""From sources to a dataset directory, with an account that adds up, in memory that does not grow with the data.

Everything a source yields is seen; what is seen is kept or dropped with a reason; what is kept is a task, a
repeat of a task (merged), held by a reference dataset (against), nearly another (near_duplicates), or left over by
the limit, the weights or the splits. `BuildReport` holds these numbers, and ``dataset.json`` says them beside the
files together with everything needed to build the same bytes again.

Tasks are read once into a spool that sorts them; a first pass over the spool finds which are distinct, and a second
one, which then knows how many there are, cuts the splits and writes them.
"""

import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypedDict, Unpack

import numpy as np
import pyarrow as pa

from aworld_train import __version__
from aworld_train.dataset.account import BuildReport
from aworld_train.dataset.columns import Families, Family
from aworld_train.dataset.drops import DropList
from aworld_train.dataset.exclusion import Reference, read_reference, reference_files, subjects
from aworld_train.dataset.gathering import Gathered, gather
from aworld_train.dataset.merging import CONFLICT, Distinct, Near
from aworld_train.dataset.mix import Selection, quotas
from aworld_train.dataset.output import check_replaceable, replacing, sha256, write_manifest
from aworld_train.dataset.plan import Plan, PlannedSource
from aworld_train.dataset.rows import RowMaker
from aworld_train.dataset.sources import SourceOptions
from aworld_train.dataset.splits import DEFAULT_SPLITS, Assignment, cut
from aworld_train.dataset.spool import Spool
from aworld_train.dataset.tasks import TaskKind
from aworld_train.dataset.writing import SplitWriter
from aworld_train.errors import DatasetError

__all__ = ["CONFLICT", "BuildReport", "build", "carry_out"]

DROPPED = "dropped.jsonl"


class SourceKeywords(TypedDict, total=False):
    """The options of a source as keywords; see `SourceOptions`."""

    columns: Mapping[str, str]
    part: str | None
    config: str | None
    scorer: str | None
    answer_schema: str | None
    system: str | None
    attachments_at: str
    tasks: str


def build(
    source: str,
    out: str | Path,
    *,
    files: Sequence[str | Path] = (),
    levels: Sequence[str] = (),
    splits: Mapping[str, float] | None = None,
    seed: int = 0,
    limit: int | None = None,
    dedupe: bool = False,
    against: Sequence[str | Path] = (),
    strict: bool = False,
    **options: Unpack[SourceKeywords],
) -> BuildReport:
    """Build a dataset directory from one source: a parquet file per split, ``dropped.jsonl`` and ``dataset.json``.

    Args:
        source: Name of a source such as ``gaia``, ``gsm8k`` or ``jsonl``, or one's own as ``module:function``.
        out: The directory; an earlier dataset there is replaced, anything else is refused.
        files: Input files of the source.
        levels: Levels to take; empty for all.
        splits: Fraction of the tasks by split name; default 0.9 ``train`` and 0.1 ``val``.
        seed: The same seed and input give the same bytes.
        limit: Most tasks over all splits.
        dedupe: Leave out questions that are nearly another of the dataset.
        against: Dataset directories or parquet files whose tasks, and questions nearly theirs, are left out.
        strict: Whether the first piece of input that is dropped is an error.
        options: Other fields of `SourceOptions`.

    Raises:
        UsageError: The options do not go together.
        DatasetError: Input cannot be read, a split would be empty, or ``out`` cannot be replaced.
    """
    told = SourceOptions(files=tuple(map(str, files)), levels=tuple(levels), **options)
    return carry_out(
        Plan(
            sources=[PlannedSource(source, told)],
            out=Path(out),
            splits=dict(DEFAULT_SPLITS if splits is None else splits),
            seed=seed,
            limit=limit,
            dedupe=dedupe,
            against=[Path(path) for path in against],
            strict=strict,
        )
    )


def carry_out(plan: Plan) -> BuildReport:
    """Build the dataset directory that a plan describes.

    Raises:
        UsageError: The plan cannot be carried out as it is written.
        DatasetError: Input cannot be read, a split would be empty, or the directory cannot be replaced.
    """
    plan.check()
    plan = plan.told()
    check_replaceable(plan.out)
    reference = read_reference(reference_files(plan.against), plan.seed)
    with replacing(plan.out) as folder:
        return _Build(plan, reference, folder).run()


class _Build:
    """One build under way; each step fills in what the next one needs."""

    def __init__(self, plan: Plan, reference: Reference, folder: Path) -> None:
        self.plan, self.reference, self.folder = plan, reference, folder
        work = folder.parent
        self.families = Families()
        self.spool = Spool(work / "spool")
        self.distinct = Distinct(self.spool, self.families, work / "distinct")

    def run(self) -> BuildReport:
        plan = self.plan
        with DropList(self.folder / DROPPED, plan.strict) as drops:
            gathered = [
                gather(source, number, plan.seed, self.families, self.spool, drops)
                for number, source in enumerate(plan.sources)
            ]
            self.reference.check_comparable(self.families)
            self.distinct.find(self.reference, self._near(), drops)
        report = self._report(gathered, drops)
        families = self.families.listed()
        selection, strata, counts = self._chosen(families)
        ends = cut(counts, plan.splits)
        rows = {
            name: sum(stratum[i] - (stratum[i - 1] if i else 0) for stratum in ends)
            for i, name in enumerate(plan.splits)
        }
        if empty := [name for name in plan.splits if not rows[name]]:
            raise DatasetError(
                f"The split {empty[0]!r} would be empty: {_said(report)}, and {sum(counts)} tasks are to be split. "
                "Give more input, a higher --limit, or other --split fractions."
            )
        levels = self._write(families, selection(), strata, Assignment(ends))
        report = replace(
            report,
            rows=rows,
            levels=levels,
            left_over=report.left_over - sum(rows.values()),
        )
        return replace(report, outputs=write_manifest(self.folder, report.manifest()))

    def _near(self) -> Near | None:
        """How a question is compared with others; None where that was not asked for."""
        if not (self.plan.dedupe or self.plan.against):
            return None
        from aworld_train.dataset.near import NearDuplicates

        near = NearDuplicates()
        for kind, subject, path in subjects(self.reference.files):
            if kind is TaskKind.question:
                near.add_reference(subject, path.name)
        return near.seen if self.plan.dedupe else lambda text, name: near.match(text)

    def _chosen(
        self, families: Sequence[Family]
    ) -> "tuple[partial[Selection], np.ndarray[Any, Any], list[int]]":
        """Which tasks are taken, the stratum of each family, and how many are taken of each stratum."""
        sources = [family.source for family in families]
        weights = [source.weight for source in self.plan.sources if source.weight is not None]
        shares = None
        if weights:
            available = np.zeros(len(self.plan.sources), dtype=np.int64)
            for codes in self.distinct.families():
                available += np.bincount(np.array(sources)[codes], minlength=len(available))
            shares = quotas(available.tolist(), weights, self.plan.limit)
        selection = partial(Selection, sources, shares, self.plan.limit)
        kinds = sorted({(family.source, family.level) for family in families})
        numbers = {kind: number for number, kind in enumerate(kinds)}
        strata = np.array([numbers[family.source, family.level] for family in families], dtype=np.int64)
        counts, going = np.zeros(len(kinds), dtype=np.int64), selection()
        for codes in self.distinct.families():
            counts += np.bincount(strata[codes][going.take(codes)], minlength=len(kinds))
        return selection, strata, counts.tolist()

    def _write(
        self,
        families: Sequence[Family],
        selection: Selection,
        strata: "np.ndarray[Any, Any]",
        assignment: Assignment,
    ) -> dict[str, dict[str, int]]:
        """Write the files of all splits; returns rows by level, by split."""
        maker, names = RowMaker(families), list(self.plan.splits)
        written = {name: np.zeros(len(families), dtype=np.int64) for name in names}
        taken = 0
        with ExitStack() as stack:
            writers = [
                stack.enter_context(SplitWriter(self.folder / f"{name}.parquet", name, maker))
                for name in names
            ]
            for batch, positions in self.distinct.batches():
                codes = batch.column("family").to_numpy()[positions]
                chosen = selection.take(codes)
                positions, codes = positions[chosen], codes[chosen]
                index = taken + np.arange(len(positions))
                taken += len(positions)
                places = assignment.assign(strata[codes])
                for place, (name, writer) in enumerate(zip(names, writers, strict=True)):
                    here = places == place
                    writer.add(batch, positions[here], index[here])
                    written[name] += np.bincount(codes[here], minlength=len(families))
        return {name: _by_level(families, counts.tolist()) for name, counts in written.items()}

    def _report(self, gathered: Sequence[Gathered], drops: DropList) -> BuildReport:
        """The account up to what is written; ``left_over`` still counts all distinct tasks."""
        plan, counts = self.plan, self.distinct.counts
        seen = sum(count.seen for count in gathered)
        kept = seen - drops.reasons.total()
        return BuildReport(
            out=plan.out,
            sources=[
                {**source.to_json(), "seen": count.seen, "files": _named(_read_by(source))}
                for source, count in zip(plan.sources, gathered, strict=True)
            ],
            seed=plan.seed,
            limit=plan.limit,
            splits=dict(plan.splits),
            dedupe=plan.dedupe,
            against_files=_named(self.reference.files),
            seen=seen,
            kept=kept,
            dropped=dict(sorted(drops.reasons.items())),
            merged=counts.merged,
            against=counts.against,
            near_duplicates=counts.near_duplicates,
            left_over=kept - counts.merged - counts.against - counts.near_duplicates,
            rows={},
            levels={},
            outputs={},
            versions={
                "aworld-train": __version__,
                "pyarrow": pa.__version__,
                "numpy": np.__version__,
                "python": platform.python_version(),
            },
        )


def _read_by(source: PlannedSource) -> list[Path]:
    """The files a source said it opened, and the plain files it was given."""
    given = [Path(file) for file in source.options.files if Path(file).is_file()]
    return list(dict.fromkeys([*given, *source.options.read]))


def _named(paths: Sequence[Path]) -> list[dict[str, str]]:
    return [{"name": path.name, "sha256": sha256(path)} for path in paths]


def _by_level(families: Sequence[Family], counts: Sequence[int]) -> dict[str, int]:
    found = Counter[str]()
    for family, count in zip(families, counts, strict=True):
        if family.level and count:
            found[family.level] += count
    return dict(sorted(found.items()))


def _said(report: BuildReport) -> str:
    return (
        f"{report.seen} pieces of input were seen, {sum(report.dropped.values())} dropped, {report.merged} merged, "
        f"{report.against} left out by --against, {report.near_duplicates} as near-duplicates"
    )
