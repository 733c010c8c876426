"""What a build read, kept and wrote, in numbers that add up."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from aworld_train.dataset.schema import SCHEMA_VERSION


@dataclass(frozen=True)
class BuildReport:
    """What a build read, kept and wrote.

    ``seen == kept + sum(dropped.values())`` and ``kept == sum(rows.values()) + merged + against +
    near_duplicates + left_over``.

    Attributes:
        out: The dataset directory.
        sources: Each source: its name, options, weight, rows and the name and sha256 of each file it read.
        seed: Seed of the order, the splits and what sources make up.
        limit: Most tasks asked for, or None.
        splits: Fraction of the tasks asked for, by split.
        dedupe: Whether near-duplicates were looked for within the dataset.
        against_files: Name and sha256 of each file whose tasks were left out.
        seen: Pieces of input looked at; an unusable row counts as one.
        kept: Those that are tasks.
        dropped: Those that are not, by reason; each is listed in ``dropped.jsonl``.
        merged: Kept ones that repeat another.
        against: Kept ones that a file of ``against_files`` holds.
        near_duplicates: Kept ones that are nearly another, or nearly one of ``against_files``; listed too.
        left_over: Distinct tasks beyond the limit or the weights, or outside all splits.
        rows: Rows written, by split.
        levels: Rows written by level, by split; empty where tasks have no level.
        outputs: sha256 of each written file, by name.
        schema_version: Version of the row schema.
        versions: Versions of this package and of what wrote the files.
    """

    out: Path
    sources: Sequence[Mapping[str, Any]]
    seed: int
    limit: int | None
    splits: Mapping[str, float]
    dedupe: bool
    against_files: Sequence[Mapping[str, str]]
    seen: int
    kept: int
    dropped: Mapping[str, int]
    merged: int
    against: int
    near_duplicates: int
    left_over: int
    rows: Mapping[str, int]
    levels: Mapping[str, Mapping[str, int]]
    versions: Mapping[str, str]
    outputs: Mapping[str, str]
    schema_version: int = SCHEMA_VERSION

    def to_json(self) -> dict[str, Any]:
        """The report as JSON values."""
        return {**asdict(self), "out": str(self.out)}

    def manifest(self) -> dict[str, Any]:
        """What ``dataset.json`` keeps: the same for the same build, wherever the dataset lies."""
        return {key: value for key, value in self.to_json().items() if key not in ("out", "outputs")}
