"""The YAML recipe of a dataset: a build plan in a file.

::

    sources:
      - {source: gsm8k, file: [train.jsonl], tasks: questions, weight: 2}
      - {source: arithmetic, weight: 1}
    splits: {train: 0.9, val: 0.1}
"""

from dataclasses import Field, dataclass, field, fields, make_dataclass
from pathlib import Path
from typing import Any

from omegaconf import MISSING, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from aworld_train.dataset.matches import FigureVariants
from aworld_train.dataset.plan import BuildPlan, PlannedSource
from aworld_train.dataset.sources.options import OptionError, default_value, make_options, user_options
from aworld_train.dataset.splits import DEFAULT_SPLITS
from aworld_train.errors import RecipeError, suggestion
from aworld_train.recipe import locate
from aworld_train.recipe.source import Layer, read_file
from aworld_train.recipe.tree import KeyPath, dotted


def _recipe_key(key: str, option_field: Field[Any]) -> tuple[str, Any, Any]:
    default = default_value(option_field)
    if isinstance(default, tuple):
        return key, list[str], field(default_factory=list)
    if isinstance(default, dict):
        return key, dict[str, str], field(default_factory=dict)
    return key, option_field.type, default


SourceRecipe = make_dataclass(
    "SourceRecipe",
    [
        ("source", str, MISSING),
        *(_recipe_key(option.key, option_field) for option_field, option in user_options()),
        ("weight", float | None, None),
    ],
)
"""One source of the mix; its keys are the options of a source that ``dataset build`` has."""


@dataclass
class DatasetRecipe:
    """A whole build; relative paths start from the working directory. Each of its sources is a `SourceRecipe`."""

    sources: list[Any] = field(default_factory=list)
    out: str | None = None
    splits: dict[str, float] = field(default_factory=dict)
    seed: int = 0
    limit: int | None = None
    dedupe: bool = False
    against: list[str] = field(default_factory=list)
    figure_variants: FigureVariants | None = None
    strict: bool = False


def read_recipe(name: str) -> BuildPlan:
    path = locate.find(name, Path.cwd(), ready=locate.shipped_datasets())
    layer = read_file(path, locate.display(path))
    _check_keys(layer)
    sources = layer.data.pop("sources", None) or []
    recipe: DatasetRecipe = _typed(DatasetRecipe, layer.data, layer, ())
    values = vars(recipe) | {
        "sources": [_planned(source, layer, ("sources", str(i))) for i, source in enumerate(sources)],
        "out": Path(recipe.out or default_out(path.stem)),
        "splits": recipe.splits or dict(DEFAULT_SPLITS),
        "against": [Path(file) for file in recipe.against],
    }
    return BuildPlan(**values)


def default_out(name: str) -> Path:
    return Path("data") / name


def _planned(data: dict[str, Any], layer: Layer, path: KeyPath) -> PlannedSource:
    source = _typed(SourceRecipe, data, layer, path)
    try:
        options = make_options(vars(source))
    except OptionError as error:
        raise RecipeError(f"{layer.at((*path, error.option_key))}: {error.message}") from error
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
        key_path = (*path, key)
        if key not in known:
            hint = suggestion(key, known, f" There are: {', '.join(sorted(known))}")
            raise RecipeError(f"{layer.at(key_path)}: unknown key `{dotted(key_path)}`.{hint}")
        # One file or level may be written without the list.
        if isinstance(value, str | int | float) and str(section.__annotations__[key]).startswith("list"):
            data[key] = [value]


def _typed(section: type, data: dict[str, Any], layer: Layer, path: KeyPath) -> Any:
    try:
        return OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(section), OmegaConf.create(data)))
    except OmegaConfBaseException as error:
        key_path = (*path, *str(error.full_key or "").replace("[", ".").replace("]", "").split("."))
        reason = str(error).strip().partition("\n")[0]
        raise RecipeError(f"{layer.at(key_path)}: `{dotted(key_path)}`: {reason}") from error
