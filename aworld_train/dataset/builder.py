"""From sources to a dataset directory, with an account that adds up, in memory that does not grow with the data.

Everything a source yields is seen; what is seen is kept or dropped with a reason; what is kept is a task, a
repeat of a task (merged), held by a reference dataset (against), nearly another (near_duplicates), or left over by
the limit, the weights or the splits. `BuildReport` holds these numbers, and ``dataset.json`` says them beside the
files together with everything needed to build the same bytes again.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypedDict, Unpack

from aworld_train.dataset.account import BuildReport
from aworld_train.dataset.building import Build
from aworld_train.dataset.exclusion import read_reference, reference_files
from aworld_train.dataset.merging import CONFLICT
from aworld_train.dataset.output import check_replaceable, replacing
from aworld_train.dataset.plan import BuildPlan, PlannedSource
from aworld_train.dataset.sources import SourceOptions
from aworld_train.dataset.splits import DEFAULT_SPLITS

__all__ = ["CONFLICT", "BuildReport", "build", "carry_out"]


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
        BuildPlan(
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


def carry_out(plan: BuildPlan) -> BuildReport:
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
        return Build(plan, reference, folder).run()
