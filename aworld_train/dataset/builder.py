"""From a source to a dataset directory, with an account that adds up.

Everything the source yields is seen; what is seen is kept or dropped with a reason; what is kept is a task, a
repeat of a task (merged), excluded, or left over by the limit or the splits. `BuildReport` holds these
numbers, and ``dataset.json`` says them beside the files together with everything needed to build the same
bytes again.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

from aworld_train.dataset.arithmetic import arithmetic_tasks
from aworld_train.dataset.exclusion import excluded_files, excluded_keys
from aworld_train.dataset.gsm8k import annotation_tasks, question_tasks
from aworld_train.dataset.output import check_replaceable, replacing, sha256, write_manifest
from aworld_train.dataset.rows import row, write_rows
from aworld_train.dataset.schema import SCHEMA_VERSION
from aworld_train.dataset.splits import DEFAULT_SPLITS, check_splits, cut, shuffled
from aworld_train.dataset.tasks import Dropped, Task, TaskKind
from aworld_train.errors import DatasetError, UsageError, nearest

SOURCES = ("gsm8k", "arithmetic")
TASKS = {"annotations": TaskKind.expression, "questions": TaskKind.question}
DEFAULT_ARITHMETIC_TASKS = 4000
DROPPED = "dropped.jsonl"
CONFLICT = "same question with another answer"

_DRAWS_PER_TASK = (
    50  # how long to look for one more expression that is new before the limit is called too high
)


@dataclass(frozen=True)
class BuildReport:
    """What a build read, kept and wrote.

    ``seen == kept + sum(dropped.values())`` and ``kept == sum(rows.values()) + merged + excluded +
    left_over``.

    Attributes:
        out: The dataset directory.
        source: ``gsm8k`` or ``arithmetic``.
        tasks: ``annotations`` or ``questions``.
        seed: Seed of the order, the splits and the arithmetic generator.
        limit: Most tasks asked for, or None.
        splits: Fraction of the tasks asked for, by split.
        files: Name and sha256 of each input file.
        exclude: Name and sha256 of each file whose tasks were left out.
        seen: Annotations, rows or expressions looked at; an unusable row counts as one.
        kept: Those that are tasks.
        dropped: Those that are not, by reason; each is listed in ``dropped.jsonl``.
        merged: Kept ones that repeat another.
        excluded: Kept ones that an excluded dataset holds.
        left_over: Distinct tasks beyond the limit or outside all splits.
        rows: Rows written, by split.
        outputs: sha256 of each written file, by name.
        schema_version: Version of the row schema.
    """

    out: Path
    source: str
    tasks: str
    seed: int
    limit: int | None
    splits: Mapping[str, float]
    files: Sequence[Mapping[str, str]]
    exclude: Sequence[Mapping[str, str]]
    seen: int
    kept: int
    dropped: Mapping[str, int]
    merged: int
    excluded: int
    left_over: int
    rows: Mapping[str, int]
    outputs: Mapping[str, str]
    schema_version: int = SCHEMA_VERSION

    def to_json(self) -> dict[str, Any]:
        """The report as JSON values."""
        return {**asdict(self), "out": str(self.out)}


def build(
    source: str,
    out: str | Path,
    *,
    files: Sequence[str | Path] = (),
    splits: Mapping[str, float] | None = None,
    seed: int = 0,
    limit: int | None = None,
    tasks: str = "annotations",
    exclude: Sequence[str | Path] = (),
) -> BuildReport:
    """Build a dataset directory: one parquet file per split, ``dropped.jsonl`` and ``dataset.json``.

    Args:
        source: ``gsm8k`` reads GSM8K's JSONL files; ``arithmetic`` makes expressions up and needs no file.
        out: The directory; an earlier dataset there is replaced, anything else is refused.
        files: Input files of ``gsm8k``.
        splits: Fraction of the tasks by split name; default 0.9 ``train`` and 0.1 ``val``.
        seed: The same seed and input give the same bytes.
        limit: Most tasks over all splits; for ``arithmetic`` how many are made (4000).
        tasks: ``annotations`` (work out one expression) or ``questions`` (solve the problem); for ``gsm8k``.
        exclude: Dataset directories or parquet files whose tasks are left out.

    Raises:
        UsageError: The options do not go together.
        DatasetError: Input cannot be read, a split would be empty, or ``out`` cannot be replaced.
    """
    paths, splits = [Path(path) for path in files], dict(DEFAULT_SPLITS if splits is None else splits)
    _check_options(source, paths, limit, tasks)
    check_splits(splits)
    check_replaceable(Path(out))
    to_exclude, kind = excluded_files(exclude), TASKS[tasks]
    gathered = _Gathered(avoid=excluded_keys(to_exclude, kind))
    if source == "arithmetic":
        limit = DEFAULT_ARITHMETIC_TASKS if limit is None else limit
        gathered.draw(arithmetic_tasks(seed), limit)
    else:
        read = annotation_tasks if kind is TaskKind.expression else question_tasks
        gathered.take_all(chain.from_iterable(map(read, paths)))
    chosen = shuffled(gathered.tasks, seed)[:limit]
    parts = cut(len(chosen), splits)
    if empty := [name for name, part in parts.items() if not part]:
        raise DatasetError(
            f"The split {empty[0]!r} would be empty: {_account(gathered, len(chosen))}. "
            "Give more input, a higher --limit, or other --split fractions."
        )
    report = BuildReport(
        out=Path(out),
        source=source,
        tasks=tasks,
        seed=seed,
        limit=limit,
        splits=splits,
        files=_named(paths),
        exclude=_named(to_exclude),
        seen=gathered.seen,
        kept=gathered.seen - len(gathered.dropped),
        dropped=dict(sorted(Counter(item.reason for item in gathered.dropped).items())),
        merged=gathered.merged,
        excluded=gathered.excluded,
        left_over=len(gathered.tasks) - sum(map(len, parts.values())),
        rows={name: len(part) for name, part in parts.items()},
        outputs={},
    )
    with replacing(report.out) as folder:
        for name, part in parts.items():
            write_rows(folder / f"{name}.parquet", [row(gathered.tasks[chosen[i]], i, name) for i in part])
        _write_dropped(folder / DROPPED, gathered.dropped)
        # Where it lies is not part of a dataset: the same build elsewhere has the same dataset.json.
        content = {key: value for key, value in report.to_json().items() if key not in ("out", "outputs")}
        return replace(report, outputs=write_manifest(folder, content))


@dataclass
class _Gathered:
    """The distinct tasks of a source by key, in the order they came, and the count of everything else."""

    avoid: set[str]
    tasks: dict[str, Task] = field(default_factory=dict)
    dropped: list[Dropped] = field(default_factory=list)
    seen: int = 0
    merged: int = 0
    excluded: int = 0

    def take_all(self, items: Iterable[Task | Dropped]) -> None:
        for item in items:
            self.take(item)

    def draw(self, items: Iterator[Task], count: int) -> None:
        """Take items until there are ``count`` distinct tasks."""
        for item in items:
            self.take(item)
            if len(self.tasks) == count:
                return
            if self.seen >= count * _DRAWS_PER_TASK:
                raise DatasetError(
                    f"Only {len(self.tasks)} distinct tasks were found for --limit {count} in {self.seen} "
                    "draws. Ask for fewer."
                )

    def take(self, item: Task | Dropped) -> None:
        self.seen += 1
        if isinstance(item, Dropped):
            self.dropped.append(item)
        elif item.key in self.avoid:
            self.excluded += 1
        elif (known := self.tasks.setdefault(item.key, item)) is item:
            return
        elif known.answer == item.answer:
            self.merged += 1
        else:
            self.dropped.append(Dropped(item.file, item.line, item.subject, CONFLICT))


def _check_options(source: str, files: Sequence[Path], limit: int | None, tasks: str) -> None:
    if source not in SOURCES:
        hint = nearest(source, SOURCES)
        meant = f" Did you mean {hint}?" if hint else ""
        raise UsageError(f"There is no source {source!r}; there are {', '.join(SOURCES)}.{meant}")
    if tasks not in TASKS:
        raise UsageError(f"--tasks {tasks!r} is not one of {', '.join(TASKS)}.")
    if limit is not None and limit < 1:
        raise UsageError(f"--limit {limit} leaves no task; give 1 or more.")
    if source == "arithmetic" and files:
        raise UsageError("The source arithmetic makes its tasks and reads no --file; gsm8k does.")
    if source == "arithmetic" and tasks != "annotations":
        raise UsageError("The source arithmetic has no questions; leave --tasks out.")
    if source == "gsm8k" and not files:
        raise UsageError(
            "The source gsm8k reads files: give --file train.jsonl (GSM8K's JSONL, MIT licence)."
        )


def _write_dropped(path: Path, dropped: Iterable[Dropped]) -> None:
    lines = [json.dumps(asdict(item), ensure_ascii=False) + "\n" for item in dropped]
    path.write_text("".join(lines), encoding="utf-8")


def _named(paths: Sequence[Path]) -> list[dict[str, str]]:
    return [{"name": path.name, "sha256": sha256(path)} for path in paths]


def _account(gathered: _Gathered, chosen: int) -> str:
    return (
        f"{gathered.seen} pieces of input were seen, {len(gathered.dropped)} dropped, {gathered.merged} "
        f"merged, {gathered.excluded} excluded, and {chosen} tasks are to be split"
    )
