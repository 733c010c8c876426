"""What a build is asked to do, whether by options or by a recipe, checked before anything is read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from aworld_train.dataset.mix import check_weights
from aworld_train.dataset.names import check_schema_name, check_scorer_name
from aworld_train.dataset.sources import SourceOptions, check_options
from aworld_train.dataset.splits import DEFAULT_SPLITS, check_splits
from aworld_train.errors import DatasetError, UsageError

_NOT_KEPT = ("files", "seed", "limit", "read", "attachments")
"""Options that are the build's, or say where files lie, which is no part of a dataset."""


@dataclass(frozen=True)
class PlannedSource:
    """One source of a build.

    Attributes:
        name: Its name, or ``module:function``.
        options: What it is told.
        weight: Its share of the rows, in any unit; None to take all it has.
    """

    name: str
    options: SourceOptions = field(default_factory=SourceOptions)
    weight: float | None = None

    def to_json(self) -> dict[str, Any]:
        """The source as ``dataset.json`` keeps it: the options that differ from their defaults."""
        plain, told = SourceOptions(), {}
        for option in fields(SourceOptions):
            value = getattr(self.options, option.name)
            if option.name not in _NOT_KEPT and value != getattr(plain, option.name):
                told[option.name] = list(value) if isinstance(value, tuple) else value
        return {"source": self.name, "options": told, "weight": self.weight}


@dataclass(frozen=True)
class BuildPlan:
    """A whole build.

    Attributes:
        sources: Where tasks come from.
        out: The dataset directory.
        splits: Fraction of the tasks by split.
        seed: Seed of the order, the splits and what sources make up.
        limit: Most tasks over all splits.
        dedupe: Leave out questions that are nearly another of the dataset.
        against: Dataset directories or parquet files whose tasks are left out.
        strict: Whether the first piece of input that is dropped is an error.
    """

    sources: Sequence[PlannedSource]
    out: Path
    splits: Mapping[str, float] = field(default_factory=lambda: dict(DEFAULT_SPLITS))
    seed: int = 0
    limit: int | None = None
    dedupe: bool = False
    against: Sequence[Path] = ()
    strict: bool = False

    def told(self) -> "BuildPlan":
        """The plan with every source told the seed and the limit."""
        sources = [
            replace(
                source,
                options=replace(source.options, seed=self.seed, limit=self.limit, read=[], attachments=set()),
            )
            for source in self.sources
        ]
        return replace(self, sources=sources)

    def check(self) -> None:
        """See that the plan can be carried out.

        Raises:
            UsageError: It cannot as it is written.
        """
        if not self.sources:
            raise UsageError("No source is given; name at least one under `sources`.")
        if self.limit is not None and self.limit < 1:
            raise UsageError(f"--limit {self.limit} leaves no task; give 1 or more.")
        check_splits(self.splits)
        check_weights([(source.name, source.weight) for source in self.sources])
        for source in self.sources:
            check_options(source.name, source.options)
            if not source.options.attachments_at.startswith("/"):
                raise UsageError(
                    f"--attachments-at {source.options.attachments_at!r} is no absolute path, and tools may work in "
                    "any directory: give the one inside the tool environment, such as /attachments."
                )
            try:
                if source.options.scorer is not None:
                    check_scorer_name(source.options.scorer)
                if source.options.answer_schema is not None:
                    check_schema_name(source.options.answer_schema)
            except DatasetError as error:
                raise UsageError(f"The source {source.name} is given an {error.message}") from error
