"""Compares recipes: a digest of the content, and the keys in which two recipes differ."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from aworld_train.recipe.output import to_source
from aworld_train.recipe.schema import Recipe
from aworld_train.recipe.tree import dotted, map_values

_ABSENT = object()


def digest(recipe: Recipe | Mapping[str, Any]) -> str:
    """SHA-256 of a recipe's content, in hexadecimal; it depends neither on the order of keys nor on the environment."""
    data = to_source(recipe) if isinstance(recipe, Recipe) else recipe
    return hashlib.sha256(json.dumps(data, sort_keys=True, ensure_ascii=True).encode()).hexdigest()


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """The dotted keys whose values differ in plain data, in alphabetical order; one that only one has is included."""
    return sorted(changes(old, new))


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
