"""Writes a recipe as plain data and as YAML, from which the same recipe can be read, and compares such data."""

import hashlib
import json
import re
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import asdict
from enum import Enum
from typing import Any

import yaml

from aworld_train.recipe.env_text import EnvText
from aworld_train.recipe.interpolation import escape
from aworld_train.recipe.schema import Recipe
from aworld_train.recipe.source import RecipeLoader
from aworld_train.recipe.tree import dotted, map_values, mapped

_RARE_BREAKS = re.compile("[\r\x85\u2028\u2029]")
_ABSENT = object()


class _Dumper(yaml.SafeDumper):
    """Quotes every text that YAML 1.1 or the recipe loader would read as another type."""


_Dumper.yaml_implicit_resolvers = {
    first: [
        *yaml.SafeDumper.yaml_implicit_resolvers.get(first, []),
        *RecipeLoader.yaml_implicit_resolvers.get(first, []),
    ]
    for first in {*yaml.SafeDumper.yaml_implicit_resolvers, *RecipeLoader.yaml_implicit_resolvers}
}


def _represent_text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    """Text of several lines as a block; escaped if it has rarer line breaks, which YAML folds into spaces."""
    style = '"' if _RARE_BREAKS.search(text) else "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def to_dict(recipe: Recipe) -> dict[str, Any]:
    """Plain data: enums as text, no ``extends``, the framework's own keys under its name as in a recipe file."""
    data = plain_dict(recipe)
    del data["extends"]
    data[recipe.trainer.framework] = data.pop("raw")
    plain: dict[str, Any] = mapped(
        data, lambda leaf: leaf.value if isinstance(leaf, Enum) else deepcopy(leaf)
    )
    return plain


def plain_dict(section: Any) -> dict[str, Any]:
    """As ``asdict``, with the keys of recipe files."""
    return asdict(section, dict_factory=lambda pairs: {name.rstrip("_"): value for name, value in pairs})


def to_source(recipe: Recipe) -> dict[str, Any]:
    """As ``to_dict``, in the form of a recipe file (see ``written``); the framework's own section stays as it is."""
    data = to_dict(recipe)
    framework = recipe.trainer.framework
    raw = data.pop(framework)
    return {**written(data), framework: raw}


def written(tree: Any) -> Any:
    """Plain data in the form of files: references in place of text from the environment, other text escaped.

    All data from recipes passes here before it is written, so no file of a run folder holds text of an environment
    variable. Numbers, truth values and enumerations hold no secret and stay. ``interpolation.resolved`` is the inverse.
    """
    if isinstance(tree, dict):
        return {key: written(entry) for key, entry in tree.items()}
    if isinstance(tree, list | tuple):
        return type(tree)(written(entry) for entry in tree)
    if isinstance(tree, EnvText):
        return tree.reference
    return escape(tree) if isinstance(tree, str) else tree


def dump(data: dict[str, Any]) -> str:
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)


def digest(recipe: Recipe | Mapping[str, Any]) -> str:
    """SHA-256 of a recipe's content, in hexadecimal; it depends neither on the order of keys nor on the environment."""
    data = to_source(recipe) if isinstance(recipe, Recipe) else recipe
    return hashlib.sha256(json.dumps(data, sort_keys=True, ensure_ascii=True).encode()).hexdigest()


def changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """The values that differ, as (old, new) by dotted key in the order of the recipe; None for an absent one."""
    before, after = dict(map_values(old)), dict(map_values(new))
    return {
        dotted(key): (before.get(key), after.get(key))
        for key in dict.fromkeys([*after, *before])
        if not _same(before.get(key, _ABSENT), after.get(key, _ABSENT))
    }


def _same(first: Any, second: Any) -> bool:
    """Equality for which ``true`` and ``1`` differ, but ``1`` and ``1.0`` do not."""
    if isinstance(first, bool) != isinstance(second, bool):
        return False
    return bool(first == second)
