"""Recipes: a training job in one YAML file, with types, inheritance, overrides, interpolation and checks.

``load`` returns the ``Recipe``, ``read`` also the unresolved form that a run folder stores. Names are imported on first
use, so that importing this package does not slow down ``--help``; nothing here imports torch, ray or verl.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from aworld_train.recipe.schema import (
    AgentSection,
    AlgorithmSection,
    CassetteMode,
    CassetteSection,
    ClusterSection,
    DatasetSection,
    Engine,
    EnvBackend,
    EnvSection,
    LoraSection,
    ModelSection,
    Recipe,
    RewardSection,
    RolloutSection,
    TrainerSection,
)

if TYPE_CHECKING:
    from aworld_train.recipe.checks import episodes_per_update
    from aworld_train.recipe.editor_schema import json_schema
    from aworld_train.recipe.identity import changes, differences, digest
    from aworld_train.recipe.loading import LoadedRecipe, load, parent_of, read
    from aworld_train.recipe.locate import is_base, is_benchmark, shipped, shipped_folder
    from aworld_train.recipe.output import dump, to_dict, to_source, to_yaml
    from aworld_train.recipe.recipe_template import write_starting_recipe
    from aworld_train.recipe.secret_keys import masked

__all__ = [
    "AgentSection",
    "AlgorithmSection",
    "CassetteMode",
    "CassetteSection",
    "ClusterSection",
    "DatasetSection",
    "Engine",
    "EnvBackend",
    "EnvSection",
    "LoadedRecipe",
    "LoraSection",
    "ModelSection",
    "Recipe",
    "RewardSection",
    "RolloutSection",
    "TrainerSection",
    "changes",
    "differences",
    "digest",
    "dump",
    "episodes_per_update",
    "is_base",
    "is_benchmark",
    "json_schema",
    "load",
    "masked",
    "parent_of",
    "read",
    "shipped",
    "shipped_folder",
    "to_dict",
    "to_source",
    "to_yaml",
    "write_starting_recipe",
]

_MODULES = {
    "checks": ("episodes_per_update",),
    "editor_schema": ("json_schema",),
    "identity": ("changes", "differences", "digest"),
    "loading": ("LoadedRecipe", "load", "parent_of", "read"),
    "locate": ("is_base", "is_benchmark", "shipped", "shipped_folder"),
    "output": ("dump", "to_dict", "to_source", "to_yaml"),
    "recipe_template": ("write_starting_recipe",),
    "secret_keys": ("masked",),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
