"""Recipes: a training job in one YAML file, with types, inheritance, overrides, interpolation and checks.

``load`` returns the ``Recipe``, ``read`` also the unresolved form that a run folder stores. Names are imported on first
use, so that importing this package does not slow down ``--help``; nothing here imports torch, ray or verl.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from aworld_train.recipe.schema import Recipe as Recipe

if TYPE_CHECKING:
    from aworld_train.recipe.editor_schema import json_schema as json_schema
    from aworld_train.recipe.loading import LoadedRecipe as LoadedRecipe
    from aworld_train.recipe.loading import load as load
    from aworld_train.recipe.loading import parent_of as parent_of
    from aworld_train.recipe.loading import read as read
    from aworld_train.recipe.locate import is_base as is_base
    from aworld_train.recipe.locate import is_benchmark as is_benchmark
    from aworld_train.recipe.locate import shipped as shipped
    from aworld_train.recipe.output import changes as changes
    from aworld_train.recipe.output import digest as digest
    from aworld_train.recipe.output import dump as dump
    from aworld_train.recipe.output import to_source as to_source
    from aworld_train.recipe.recipe_template import write_starting_recipe as write_starting_recipe
    from aworld_train.recipe.secret_keys import masked as masked

_MODULES = {
    "editor_schema": ("json_schema",),
    "loading": ("LoadedRecipe", "load", "parent_of", "read"),
    "locate": ("is_base", "is_benchmark", "shipped"),
    "output": ("changes", "digest", "dump", "to_source"),
    "recipe_template": ("write_starting_recipe",),
    "secret_keys": ("masked",),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
