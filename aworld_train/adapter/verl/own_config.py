"""A configuration file of VeRL itself as a recipe: keys that a recipe has are moved there, the others stay raw."""

from collections.abc import Mapping
from typing import Any

from aworld_train.adapter.verl.recipe_keys import READ
from aworld_train.recipe.tree import map_values

_SECTIONS = {"actor_rollout_ref", "critic", "data", "custom_reward_function", "reward_model"}
"""Sections that VeRL's configuration has and no recipe; any of them shows whose file it is."""
_HYDRA = {"defaults", "hydra"}
ALWAYS_LOGGED = ("console", "file")
"""Loggers of every run: its log, and the file that its metrics are read from."""


def recipe_from(content: Mapping[str, Any]) -> dict[str, Any] | None:
    """A configuration of VeRL as the mapping of a recipe; None if it is none.

    Empty values are left out: such a file has them for the trainer to fill in.
    """
    if not _SECTIONS & set(content):
        return None
    recipe: dict[str, Any] = {}
    own = {key: value for key, value in content.items() if key not in _HYDRA}
    for path, value in map_values(own):
        if value in (None, "", [], {}):
            continue
        key = ".".join(path)
        if key == "trainer.total_epochs" and _steps(own) is not None:
            continue  # VeRL trains the steps if it is given both
        if key == "trainer.logger":
            names = value if isinstance(value, list) else [value]
            value = [name for name in names if name not in ALWAYS_LOGGED]
            _set(recipe, ("trainer", "loggers"), value)
            continue
        moved = READ.get(key)
        _set(recipe, tuple(moved.split(".")) if moved else ("verl", *path), value)
    return recipe


def _steps(config: Mapping[str, Any]) -> Any:
    trainer = config.get("trainer")
    return trainer.get("total_training_steps") if isinstance(trainer, Mapping) else None


def _set(tree: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    for key in path[:-1]:
        tree = tree.setdefault(key, {})
    tree[path[-1]] = value
