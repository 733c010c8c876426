"""The plan of a build, from options or from a recipe, checked before anything is read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from aworld_train.dataset.matches import FigureVariants
from aworld_train.dataset.mix import check_weights
from aworld_train.dataset.names import check_schema_name, check_scorer_name
from aworld_train.dataset.prompts.choices import check_template
from aworld_train.dataset.sources import SourceOptions, check_options
from aworld_train.dataset.sources.encodings import encoding_name
from aworld_train.dataset.sources.options import default_value, user_options
from aworld_train.dataset.splits import DEFAULT_SPLITS, check_splits
from aworld_train.errors import DatasetError, UsageError


@dataclass(frozen=True)
class PlannedSource:
    """One source of a build; ``weight`` is its share of the rows, None to take all it has."""

    name: str
    options: SourceOptions = field(default_factory=SourceOptions)
    weight: float | None = None

    def to_json(self) -> dict[str, Any]:
        values = {}
        for option_field, _ in user_options():
            value = getattr(self.options, option_field.name)
            # Where the files lie is not a part of a dataset; their names and hashes are kept beside the options.
            if option_field.name != "files" and value != default_value(option_field):
                values[option_field.name] = list(value) if isinstance(value, tuple) else value
        return {"source": self.name, "options": values, "weight": self.weight}


@dataclass(frozen=True)
class BuildPlan:
    """A whole build; `builder.build` says what its values mean."""

    sources: Sequence[PlannedSource]
    out: Path
    splits: Mapping[str, float] = field(default_factory=lambda: dict(DEFAULT_SPLITS))
    seed: int = 0
    limit: int | None = None
    dedupe: bool = False
    against: Sequence[Path] = ()
    figure_variants: FigureVariants | None = None
    strict: bool = False

    def with_shared_options(self) -> "BuildPlan":
        sources = [
            replace(
                source,
                options=replace(
                    source.options,
                    seed=self.seed,
                    limit=self.limit,
                    read=[],
                    attachments=set(),
                    unused_columns={},
                ),
            )
            for source in self.sources
        ]
        return replace(self, sources=sources)

    def check(self) -> None:
        if not self.sources:
            raise UsageError("No source is given; name at least one under `sources`.")
        if self.limit is not None and self.limit < 1:
            raise UsageError(f"--limit {self.limit} leaves no task; give 1 or more.")
        if self.figure_variants is not None and not (self.dedupe or self.against):
            raise UsageError(
                f"--figure-variants {self.figure_variants.value} is for questions that --dedupe or --against compares, "
                "and neither is given."
            )
        check_splits(self.splits)
        check_weights([(source.name, source.weight) for source in self.sources])
        for source in self.sources:
            check_options(source.name, source.options)
            encoding_name(source.options.encoding)
            if source.options.choices_prompt is not None:
                check_template(source.options.choices_prompt, "(choices_prompt)")
            if not source.options.attachments_at.startswith("/"):
                raise UsageError(
                    f"--attachments-at {source.options.attachments_at!r} is not an absolute path, and tools may work "
                    "in any directory: give the one inside the tool environment, such as /attachments."
                )
            try:
                if source.options.scorer is not None:
                    check_scorer_name(source.options.scorer)
                if source.options.answer_schema is not None:
                    check_schema_name(source.options.answer_schema)
            except DatasetError as error:
                raise UsageError(f"The source {source.name} is given an {error.message}") from error
