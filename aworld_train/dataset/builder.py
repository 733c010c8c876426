"""From sources to a dataset directory, with counts that add up, in memory that does not grow with the data.

Every item that a source yields counts as seen, and is either kept as a task or dropped with a reason; `BuildReport`
says what becomes of a kept one. ``dataset.json`` records its numbers with everything that is needed to build the same
bytes again.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from aworld_train.atomic import check_writable
from aworld_train.dataset.build_report import BuildReport
from aworld_train.dataset.building import Build
from aworld_train.dataset.exclusion import read_reference, reference_files
from aworld_train.dataset.matches import parse_figure_variants
from aworld_train.dataset.merging import CONFLICT
from aworld_train.dataset.output import check_replaceable, replacing
from aworld_train.dataset.plan import BuildPlan, PlannedSource
from aworld_train.dataset.progress import BuildProgress
from aworld_train.dataset.sources import SourceOptions
from aworld_train.dataset.sources.options import user_options
from aworld_train.dataset.splits import DEFAULT_SPLITS
from aworld_train.errors import options_as_arguments

__all__ = ["CONFLICT", "BuildReport", "build", "carry_out"]


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
        files: Input files of the source.
        levels: Levels to take; empty for all.
        splits: Fraction of the tasks by split name; default 0.9 ``train`` and 0.1 ``val``.
        seed: The same seed and input give the same bytes.
        limit: Most tasks over all splits.
        dedupe: Leave out near-duplicates of other questions of the dataset.
        against: Dataset directories or parquet files; their tasks, near-duplicates of these, and questions that
            contain one or are a part of it are left out.
        figure_variants: ``keep`` or ``drop`` questions that differ from another in their figures alone; by default
            those of a question in ``against`` are left out, and those of another of the dataset stay.
        strict: Whether the first dropped piece of input is an error.
        options: Other fields of `SourceOptions`, such as ``columns``, ``scorer`` or ``system``.

    Raises:
        UsageError: The options contradict each other, one is invalid, or ``out`` cannot be replaced.
        DatasetError: Input cannot be read, or a split would be empty.
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
    """Build the dataset directory that a plan describes; ``progress`` has what it does until it is done."""
    plan.check()
    plan = plan.with_shared_options()
    check_replaceable(plan.out)
    check_writable(plan.out.parent, "the dataset (--out)")
    progress = progress or BuildProgress()
    progress.begin("reading what --against names" if plan.against else "starting")
    reference = read_reference(reference_files(plan.against), plan.seed)
    with replacing(plan.out) as folder:
        return Build(plan, reference, folder, progress).run()
