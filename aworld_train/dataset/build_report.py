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

    Attributes:
        sources: Each source: its name, options, weight, rows, the name and sha256 of each file it read, and by file
            the columns that no field of a task used.
        dropped: The unusable pieces of input and the tasks with conflicting answers, by reason.
        near_duplicates: Tasks that are near-duplicates of another, or of one in ``against_files``.
        contained: Tasks whose question contains one of ``against_files``, or is a part of it.
        figure_variants_left_out: Tasks whose question differs from another in its figures alone.
        figure_variant_examples: File, line, text and reason of the first that were left out or kept.
        left_over: Distinct tasks beyond the limit or the weights, or outside all splits.
        levels: Rows written by level, by split; empty where tasks have no level.
        outputs: sha256 of each written file, by name.
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
