"""The report of a build: what it read, kept and wrote, in numbers that add up."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from aworld_train.dataset.schema import SCHEMA_VERSION


@dataclass(frozen=True)
class BuildReport:
    """What a build read, kept and wrote; ``dropped.jsonl`` lists what is left out, without repeats and ``against``.

    ``seen == kept + sum(dropped.values())`` and ``kept == sum(rows.values()) + merged + against +
    near_duplicates + contained + figure_variants_left_out + left_over``.

    ``sources`` have for each file its sha256 and the columns that no field used. ``left_over`` are distinct tasks
    beyond the limit or the weights, or outside all splits. ``levels`` has rows by level, by split; ``outputs`` sha256
    by file.
    """

    out: Path
    sources: Sequence[Mapping[str, Any]]
    seed: int
    limit: int | None
    splits: Mapping[str, float]
    dedupe: bool
    figure_variants: str | None
    against_files: Sequence[Mapping[str, str]]
    seen: int
    kept: int
    dropped: Mapping[str, int]
    merged: int
    against: int
    near_duplicates: int
    contained: int
    figure_variants_left_out: int
    figure_variants_kept: int
    figure_variant_examples: Sequence[Mapping[str, str | int]]
    left_over: int
    rows: Mapping[str, int]
    levels: Mapping[str, Mapping[str, int]]
    versions: Mapping[str, str]
    outputs: Mapping[str, str]
    schema_version: int = SCHEMA_VERSION

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "out": str(self.out)}

    def manifest(self) -> dict[str, Any]:
        """The content of ``dataset.json``: the same for the same build, wherever the dataset lies."""
        return {key: value for key, value in self.to_json().items() if key not in ("out", "outputs")}
