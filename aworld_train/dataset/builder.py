"""From sources to a dataset directory, with counts that add up, in memory that does not grow with the data.

Tasks are read once into a spool that sorts them. A first pass over the spool finds the distinct tasks; with their
number known, a second pass cuts the splits and writes them. Every item that a source yields counts as seen, and is
either kept as a task or dropped with a reason; `BuildReport` says what becomes of a kept one.
"""

import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aworld_train import __version__
from aworld_train.atomic import check_writable, sha256_of
from aworld_train.dataset.arrays import Numbers, as_integers, numbers
from aworld_train.dataset.build_report import BuildReport
from aworld_train.dataset.columns import Family, FamilyIndex, table_to_columns, to_columns
from aworld_train.dataset.dropped_rows import DropList, listed
from aworld_train.dataset.exclusion import Reference, read_reference, reference_files
from aworld_train.dataset.external_sort import Spool
from aworld_train.dataset.matches import parse_figure_variants
from aworld_train.dataset.merging import DistinctTasks, Near
from aworld_train.dataset.mix import Selection, quotas
from aworld_train.dataset.output import (
    ATTACHMENTS,
    check_replaceable,
    copy_attachments,
    replacing,
    write_manifest,
)
from aworld_train.dataset.plan import BuildPlan, PlannedSource
from aworld_train.dataset.progress import BuildProgress, known_rows
from aworld_train.dataset.rows import RowMaker
from aworld_train.dataset.sources import Source, SourceOptions, find_source
from aworld_train.dataset.sources.options import user_options
from aworld_train.dataset.splits import DEFAULT_SPLITS, SplitAssignment, cut
from aworld_train.dataset.tasks import Dropped, Task, TaskTable
from aworld_train.dataset.writing import SplitWriter
from aworld_train.errors import DatasetError, options_as_arguments

DROPPED = "dropped.jsonl"

MAX_EXAMPLE_CHARS = 300
BATCH_TASKS = 4096
BATCH_CHARS = 8 << 20

_MAX_REASONS = 5


_PLAN_OPTIONS = ("out", "seed", "limit", "dedupe", "against", "figure_variants", "strict")


@options_as_arguments(
    {
        "--split": "build(splits={...})",
        **{f"--{name.replace('_', '-')}": f"build({name}=...)" for name in _PLAN_OPTIONS},
        **{option.flag: f"build({option_field.name}=...)" for option_field, option in user_options()},
    }
)
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
    figure_variants: str | None = None,
    strict: bool = False,
    **options: Any,
) -> BuildReport:
    """Build a dataset directory from one source: a parquet file per split, ``dropped.jsonl`` and ``dataset.json``.

    Args:
        source: Name of a source such as ``gaia``, ``gsm8k`` or ``jsonl``, or a user-defined one as ``module:function``.
        out: The directory; an earlier dataset there is replaced, anything else is refused.
        splits: Fraction of the tasks by split name; default 0.9 ``train`` and 0.1 ``val``.
        seed: The same seed and input give the same bytes.
        dedupe: Leave out near-duplicates of other questions of the dataset.
        against: Dataset directories or parquet files; their tasks, near-duplicates of these, and questions that
            contain one or are a part of it are left out.
        figure_variants: ``keep`` or ``drop`` questions that differ from another in their figures alone; by default
            those of a question in ``against`` are left out, and those of another of the dataset stay.
        strict: Whether the first dropped piece of input is an error.
        options: Other fields of `SourceOptions`, such as ``columns``, ``scorer`` or ``system``.
    """
    source_options = SourceOptions(files=tuple(map(str, files)), levels=tuple(levels), **options)
    return carry_out(
        BuildPlan(
            sources=[PlannedSource(source, source_options)],
            out=Path(out),
            splits=dict(DEFAULT_SPLITS if splits is None else splits),
            seed=seed,
            limit=limit,
            dedupe=dedupe,
            against=[Path(path) for path in against],
            figure_variants=parse_figure_variants(figure_variants),
            strict=strict,
        )
    )


def carry_out(plan: BuildPlan, progress: BuildProgress | None = None) -> BuildReport:
    plan.check()
    plan = plan.with_shared_options()
    check_replaceable(plan.out)
    check_writable(plan.out.parent, "the dataset (--out)")
    progress = progress or BuildProgress()
    progress.begin("reading what --against names" if plan.against else "starting")
    reference = read_reference(reference_files(plan.against), plan.seed)
    with replacing(plan.out) as folder:
        return Build(plan, reference, folder, progress).run()


class Build:
    """A running build; ``files`` are attached files by their path in tasks, ``names`` these paths in the folder."""

    def __init__(self, plan: BuildPlan, reference: Reference, folder: Path, progress: BuildProgress) -> None:
        self.plan, self.reference, self.folder, self.progress = plan, reference, folder, progress
        work = folder.parent
        self.families = FamilyIndex()
        self.spool = Spool(work / "spool")
        self.distinct = DistinctTasks(self.spool, self.families, work / "distinct", progress)
        self.files: dict[str, set[Path]] = {}
        self.names: dict[str, str] = {}
        self.attached: set[str] = set()

    def run(self) -> BuildReport:
        plan = self.plan
        # Load all sources first: reading one can take long, and an error in another should be found before.
        sources = [(find_source(source.name), source.options) for source in plan.sources]
        with DropList(self.folder / DROPPED, plan.strict) as drops:
            seen = [self._gather(number, *source, drops) for number, source in enumerate(sources)]
            self.reference.check_comparable(self.families)
            near = self._near()
            kept = sum(seen) - drops.reasons.total()
            self.progress.begin("finding near-duplicates" if near else "finding repeats", kept)
            self.distinct.find(self.reference, near, drops)
        for options in (source.options for source in plan.sources):
            for tool_path, file in options.attachments:
                self.files.setdefault(tool_path, set()).add(file)
                path = PurePosixPath(tool_path)
                is_below = path.is_relative_to(options.attachments_at)
                self.names[tool_path] = str(
                    path.relative_to(options.attachments_at) if is_below else path.name
                )
        with ThreadPoolExecutor(max_workers=1) as hasher:
            # Hashing releases the interpreter's lock, so rows are made at the same time.
            files = hasher.submit(lambda: [_with_hashes(_files_read(source)) for source in plan.sources])
            rows, levels = self._write(self._account(sum(seen), drops))
            self.progress.begin("hashing the files")
            report = self._report(seen, drops, rows, levels, files.result())
        if self.attached:
            self.progress.begin("copying the attachments")
        copy_attachments(
            [(self.names[tool_path], file) for tool_path in self.attached for file in self.files[tool_path]],
            self.folder / ATTACHMENTS,
        )
        return replace(report, outputs=write_manifest(self.folder, report.manifest()))

    def _gather(self, number: int, source: Source, options: SourceOptions, drops: DropList) -> int:
        """Take everything that a source yields; returns how many pieces of input that were."""
        progress = self.progress
        progress.begin(f"reading {self.plan.sources[number].name}")
        options = replace(options, workspace=self.folder.parent / f"made-{number}")
        seen, tasks, size, file = 0, list[Task](), 0, ""
        for item in source(options):
            rows, item_file = (
                (len(item), item.shared[0].file) if isinstance(item, TaskTable) else (1, item.file)
            )
            if item_file != file:
                file, progress.phase, progress.total = (
                    item_file,
                    f"reading {item_file}",
                    known_rows(options.read),
                )
            seen += rows
            progress.rows += rows
            if isinstance(item, Dropped):
                drops.drop(item)
                continue
            if isinstance(item, Task):
                tasks.append(item)
                size += len(item.message) + sum(map(len, item.images))
                if len(tasks) < BATCH_TASKS and size <= BATCH_CHARS:
                    continue
            if tasks:
                self.spool.add(to_columns(tasks, number, self.families, options.seed))
                tasks, size = [], 0
            if isinstance(item, TaskTable):
                self.spool.add(table_to_columns(item, number, self.families, options.seed))
        if tasks:
            self.spool.add(to_columns(tasks, number, self.families, options.seed))
        return seen

    def _near(self) -> Near | None:
        if not (self.plan.dedupe or self.plan.against):
            return None
        from aworld_train.dataset.contamination import QuestionComparison

        plan = self.plan
        return QuestionComparison(self.reference.files, plan.dedupe, plan.figure_variants).compare

    def _choose(self, families: Sequence[Family]) -> tuple[partial[Selection], Numbers, list[int]]:
        """The selection of tasks to write, the stratum of each family, and the number of tasks of each stratum."""
        sources = [family.source for family in families]
        weights = [source.weight for source in self.plan.sources if source.weight is not None]
        shares = None
        if weights:
            available = np.zeros(len(self.plan.sources), dtype=np.int64)
            for codes in self.distinct.families():
                available += np.bincount(np.array(sources)[codes], minlength=len(available))
            shares = quotas(available.tolist(), weights, self.plan.limit)
        selection = partial(Selection, sources, shares, self.plan.limit)
        strata_keys = sorted({(family.source, family.level) for family in families})
        numbers = {key: number for number, key in enumerate(strata_keys)}
        strata = np.array([numbers[family.source, family.level] for family in families], dtype=np.int64)
        counts, selection_pass = np.zeros(len(strata_keys), dtype=np.int64), selection()
        for codes in self.distinct.families():
            counts += np.bincount(strata[codes][selection_pass.take(codes)], minlength=len(strata_keys))
        return selection, strata, counts.tolist()

    def _write(self, account: str) -> tuple[dict[str, int], dict[str, dict[str, int]]]:
        """Returns rows by split, and those by level."""
        families = self.families.listed()
        selection, strata, counts = self._choose(families)
        self.progress.begin("writing", sum(counts))
        ends = cut(counts, self.plan.splits)
        names = [
            name
            for position, name in enumerate(self.plan.splits)
            if any(stratum[position] - (stratum[position - 1] if position else 0) for stratum in ends)
        ]
        # Some examples are enough to begin with, where nobody has asked for validation tasks.
        if names != ["train"] or self.plan.splits != DEFAULT_SPLITS:
            for name in (name for name in self.plan.splits if name not in names):
                raise DatasetError(
                    f"The split {name!r} would be empty: {account}, and {sum(counts)} tasks are to be split. Give "
                    "more input, a higher --limit, or other --split fractions."
                )
        written = self._write_splits(names, families, selection(), strata, SplitAssignment(ends))
        rows = {name: int(by_family.sum()) for name, by_family in written.items()}
        return rows, {name: _by_level(families, counts.tolist()) for name, counts in written.items()}

    def _write_splits(
        self,
        names: Sequence[str],
        families: Sequence[Family],
        selection: Selection,
        strata: Numbers,
        assignment: SplitAssignment,
    ) -> dict[str, Numbers]:
        maker = RowMaker(families, self.families.lists)
        written = {name: np.zeros(len(families), dtype=np.int64) for name in names}
        taken = 0
        with ExitStack() as stack:
            writers = [
                stack.enter_context(SplitWriter(self.folder / f"{name}.parquet", name, maker, self.progress))
                for name in names
            ]
            for batch, positions in self.distinct.batches():
                codes = as_integers(batch.column("family"))[positions]
                chosen = selection.take(codes)
                positions, codes = positions[chosen], codes[chosen]
                index = taken + np.arange(len(positions))
                taken += len(positions)
                places = assignment.assign(strata[codes])
                if self.files:
                    attachments = batch.column("attachments").take(numbers(positions[places < len(names)]))
                    self.attached |= self.files.keys() & set(pc.list_flatten(attachments).to_pylist())
                for number, (name, writer) in enumerate(zip(names, writers, strict=True)):
                    in_split = places == number
                    writer.add(batch, positions[in_split], index[in_split])
                    written[name] += np.bincount(codes[in_split], minlength=len(families))
        return written

    def _account(self, seen: int, drops: DropList) -> str:
        counts = self.distinct.counts
        reasons = "; ".join(f"{reason}: {count}" for reason, count in drops.reasons.most_common(_MAX_REASONS))
        return (
            f"{seen} pieces of input were seen, {drops.reasons.total()} dropped"
            f"{f' ({reasons})' if reasons else ''}, {counts.merged} merged, {counts.against} left out by --against, "
            f"{counts.near_duplicates} as near-duplicates, {counts.contained} because one question contains the "
            f"other, {counts.figure_variants_left_out} as figure variants (--figure-variants)"
        )

    def _report(
        self,
        seen: Sequence[int],
        drops: DropList,
        rows: Mapping[str, int],
        levels: Mapping[str, Mapping[str, int]],
        files: Sequence[Sequence[Mapping[str, str]]],
    ) -> BuildReport:
        plan, counts = self.plan, self.distinct.counts
        kept = sum(seen) - drops.reasons.total()
        examples = [listed(example, MAX_EXAMPLE_CHARS) for example in counts.figure_variant_examples]
        merged: dict[str, Any] = vars(counts) | {"figure_variant_examples": examples}
        return BuildReport(
            out=plan.out,
            sources=[
                {
                    **source.to_json(),
                    "seen": count,
                    "files": read,
                    "unused_columns": source.options.unused_columns,
                }
                for source, count, read in zip(plan.sources, seen, files, strict=True)
            ],
            seed=plan.seed,
            limit=plan.limit,
            splits=dict(plan.splits),
            dedupe=plan.dedupe,
            figure_variants=plan.figure_variants and plan.figure_variants.value,
            against_files=_with_hashes(self.reference.files),
            seen=sum(seen),
            kept=kept,
            dropped=dict(sorted(drops.reasons.items())),
            **merged,
            left_over=kept - counts.left_out - sum(rows.values()),
            rows=rows,
            levels=levels,
            outputs={},
            versions={
                "aworld-train": __version__,
                "pyarrow": pa.__version__,
                "numpy": np.__version__,
                "python": platform.python_version(),
            },
        )


def _files_read(source: PlannedSource) -> list[Path]:
    named_files = [Path(file) for file in source.options.files if Path(file).is_file()]
    return list(dict.fromkeys([*named_files, *source.options.read]))


def _with_hashes(paths: Sequence[Path]) -> list[dict[str, str]]:
    return [{"name": path.name, "sha256": sha256_of(path)} for path in paths]


def _by_level(families: Sequence[Family], counts: Sequence[int]) -> dict[str, int]:
    rows_by_level = Counter[str]()
    for family, count in zip(families, counts, strict=True):
        if family.level and count:
            rows_by_level[family.level] += count
    return dict(sorted(rows_by_level.items()))
