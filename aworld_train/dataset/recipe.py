"""A build written down: the YAML recipe of a dataset.

::

    sources:
      - {source: gsm8k, file: [train.jsonl], tasks: questions, weight: 2}
      - {source: arithmetic, weight: 1}
    splits: {train: 0.9, val: 0.1}
    against: [data/gsm8k-test]

`DatasetRecipe` and `SourceRecipe` are the only list of keys. A key that is not there, or a value of another type, is an
error with its line.
"""

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from omegaconf import MISSING, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from aworld_train.dataset.plan import BuildPlan, PlannedSource
from aworld_train.dataset.sources.options import SourceOptions
from aworld_train.dataset.splits import DEFAULT_SPLITS
from aworld_train.errors import RecipeError, UsageError, nearest
from aworld_train.recipe import locate
from aworld_train.recipe.source import Layer, read_file
from aworld_train.recipe.tree import KeyPath, dotted


@dataclass
class SourceRecipe:
    """One source of the mix; the keys are those of ``dataset build``."""

    source: str = MISSING
    file: list[str] = field(default_factory=list)
    map: dict[str, str] = field(default_factory=dict)
    part: str | None = None
    config: str | None = None
    level: list[str] = field(default_factory=list)
    scorer: str | None = None
    answer_schema: str | None = None
    system_prompt: str | None = None
    attachments_at: str = SourceOptions.attachments_at
    tasks: str = SourceOptions.tasks
    weight: float | None = None


@dataclass
class DatasetRecipe:
    """A whole build; relative paths start from the working directory."""

    sources: list[SourceRecipe] = field(default_factory=list)
    out: str | None = None
    splits: dict[str, float] = field(default_factory=dict)
    seed: int = 0
    limit: int | None = None
    dedupe: bool = False
    against: list[str] = field(default_factory=list)
    strict: bool = False


def read_recipe(name: str) -> BuildPlan:
    """The build that a recipe file describes.

    Raises:
        RecipeError: There is no such file, or something in it is wrong; the message has its line.
    """
    path = locate.find(name, Path.cwd(), ready=locate.shipped_datasets())
    layer = read_file(path, locate.display(path))
    _check_keys(layer)
    sources = layer.data.pop("sources", None) or []
    recipe: DatasetRecipe = _typed(DatasetRecipe, layer.data, layer, ())
    return BuildPlan(
        sources=[_planned(source, layer, ("sources", str(i))) for i, source in enumerate(sources)],
        out=Path(recipe.out or default_out(path.stem)),
        splits=recipe.splits or dict(DEFAULT_SPLITS),
        seed=recipe.seed,
        limit=recipe.limit,
        dedupe=recipe.dedupe,
        against=[Path(file) for file in recipe.against],
        strict=recipe.strict,
    )


def default_out(name: str) -> Path:
    """Where a dataset goes that was given no directory."""
    return Path("data") / name


def read_system_prompt(path: str | Path) -> str:
    """The text of a system prompt's file.

    Raises:
        UsageError: It cannot be read, or is empty.
    """
    try:
        text = Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(f"The system prompt {path} cannot be read: {reason}.") from error
    if not text:
        raise UsageError(f"The system prompt {path} is empty; leave it out for none.")
    return text


def _planned(data: dict[str, Any], layer: Layer, path: KeyPath) -> PlannedSource:
    source: SourceRecipe = _typed(SourceRecipe, data, layer, path)
    try:
        system = None if source.system_prompt is None else read_system_prompt(source.system_prompt)
    except UsageError as error:
        raise RecipeError(f"{layer.at((*path, 'system_prompt'))}: {error.message}") from error
    options = SourceOptions(
        files=tuple(source.file),
        columns=dict(source.map),
        part=source.part,
        config=source.config,
        levels=tuple(source.level),
        scorer=source.scorer,
        answer_schema=source.answer_schema,
        system=system,
        attachments_at=source.attachments_at,
        tasks=source.tasks,
    )
    return PlannedSource(source.source, options, source.weight)


def _check_keys(layer: Layer) -> None:
    sources = layer.data.get("sources") or []
    if not isinstance(sources, list):
        raise RecipeError(f"{layer.at(('sources',))}: `sources` is a list, each entry with a `source`")
    _check_section(layer, layer.data, DatasetRecipe, ())
    for number, source in enumerate(sources):
        path = ("sources", str(number))
        if not isinstance(source, dict) or "source" not in source:
            raise RecipeError(f"{layer.at(path)}: entry {number + 1} of `sources` has no key `source`")
        _check_section(layer, source, SourceRecipe, path)


def _check_section(layer: Layer, data: dict[str, Any], section: type, path: KeyPath) -> None:
    known = {key.name for key in fields(section)}
    for key, value in data.items():
        here = (*path, key)
        if key not in known:
            hint = nearest(key, known)
            meant = f"; did you mean `{hint}`?" if hint else f". There are: {', '.join(sorted(known))}"
            raise RecipeError(f"{layer.at(here)}: unknown key `{dotted(here)}`{meant}")
        # One file or level may be written without the list.
        if isinstance(value, str | int | float) and str(section.__annotations__[key]).startswith("list"):
            data[key] = [value]


def _typed(section: type, data: dict[str, Any], layer: Layer, path: KeyPath) -> Any:
    """The section with the values of ``data``, which stands at ``path`` of the recipe."""
    try:
        return OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(section), OmegaConf.create(data)))
    except OmegaConfBaseException as error:
        here = (*path, *str(error.full_key or "").replace("[", ".").replace("]", "").split("."))
        reason = str(error).strip().partition("\n")[0]
        raise RecipeError(f"{layer.at(here)}: `{dotted(here)}`: {reason}") from error
