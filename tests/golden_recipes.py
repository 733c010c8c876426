"""What the ready recipes compose to, as far as it differs from VeRL's defaults; kept in tests/data/golden.

python -m tests.golden_recipes            # writes the files again, after a change that is meant
"""

import os
import tempfile
from pathlib import Path
from typing import Any

from aworld_train import recipe as recipes
from aworld_train.adapter.verl import schema
from aworld_train.adapter.verl.compose import compose
from aworld_train.recipe.schema import Method
from aworld_train.recipe.tree import merge, put
from tests.locations import REPOSITORY

FOLDER = REPOSITORY / "tests" / "data" / "golden"
# Benchmarks are measured on, not trained with.
TRAINED = [
    name for name in recipes.shipped() if not name.startswith("base/") and not recipes.is_benchmark(name)
]
SUPERVISED = [name for name in TRAINED if not recipes.load(name).plays_episodes]
READY = [name for name in TRAINED if name not in SUPERVISED]
"""Recipes of reinforcement learning."""
_RUN = Path("/run-folder")


def golden(name: str) -> str:
    """The file of a recipe: its composed keys that VeRL's default configuration has otherwise, as YAML."""
    here = Path.cwd()
    with tempfile.TemporaryDirectory() as empty:
        os.chdir(empty)  # a file that happens to be there has an absolute path in the configuration
        try:
            composed = compose(recipes.load(recipes.shipped()[name]), _RUN)
        finally:
            os.chdir(here)
    if name in SUPERVISED:
        defaults = dict(_values(schema.resolve(schema.default_config(Method.sft))))
    else:
        composed["ray_kwargs"]["ray_init"]["runtime_env"].pop("py_executable", None)
        defaults = dict(_values(_resolved_defaults()))
    tree: dict[str, Any] = {}
    for path, value in _values(composed):
        if path not in defaults or defaults[path] != value:
            put(tree, path, value)
    return recipes.dump(tree)


def _resolved_defaults() -> dict[str, Any]:
    """VeRL's defaults, resolved, with an engine, which has no default."""
    names = {
        "actor_rollout_ref": {"rollout": {"name": "vllm"}},
        "reward": {"reward_model": {"rollout": {"name": "vllm"}}},
    }
    return schema.resolve(merge(schema.default_config(), names))


def _values(tree: dict[str, Any], path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:
    """The values of a tree by path, lists as one value."""
    rows: list[tuple[tuple[str, ...], Any]] = []
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            rows += _values(value, (*path, key))
        else:
            rows.append(((*path, key), value))
    return rows


def main() -> None:
    """Write the files of all ready recipes."""
    for name in TRAINED:
        file = FOLDER / f"{name}.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(golden(name), encoding="utf-8")


if __name__ == "__main__":
    main()
