"""What a scheduler's job runs: the command ``train`` once more, with the recipe as it was when the job was submitted.

The recipe is written with every key, overrides applied and references unresolved. On a cluster the job gets the
variables that the run is known to need and no other secret of the user's shell.
"""

import os
import sys
from pathlib import Path
from typing import Any

import yaml

from aworld_train import env
from aworld_train.env.client_servers import read_client_servers
from aworld_train.recipe import LoadedRecipe, dump
from aworld_train.recipe.interpolation import variable_names
from aworld_train.recipe.schema import Recipe
from aworld_train.recipe.tree import leaves
from aworld_train.training.run_files import LAUNCH_FOLDER

RECIPE = f"{LAUNCH_FOLDER}/recipe.yaml"
"""The recipe of a job, below the folder of its files."""


def job_recipe(loaded: LoadedRecipe) -> dict[str, str]:
    return {RECIPE: dump(loaded.unresolved)}


def job_command(recipe: Path, runs: Path, launcher: str, *, resume: bool) -> list[str]:
    """The command that a job runs; inside its job the launcher runs the recipe and submits nothing."""
    return [
        *(sys.executable, "-P", "-m", "aworld_train", "train", str(recipe)),
        *("--runs", str(runs.resolve()), "--launcher", launcher),
        *(("--resume",) if resume else ()),
    ]


_CONNECTION = ("MCP_SERVER_URL", "MCP_SERVER_TOKEN", "MCP_SERVERS")
_PREFIXES = ("NCCL_", "VLLM_", "VERL_LOGGING_")
_NAMES = ("HF_TOKEN", "HF_ENDPOINT")
_TRACKERS = {
    "wandb": "WANDB_",
    "mlflow": "MLFLOW_",
    "tensorboard": "TENSORBOARD_",
    "swanlab": "SWANLAB_",
    "clearml": "CLEARML_",
    "trackio": "TRACKIO_",
}
"""The prefix of the variables of a tracker, by its name in ``trainer.loggers``."""


def job_variables(loaded: LoadedRecipe) -> dict[str, str]:
    """The variables that are set, by name; those of the tool environment also from ``.env``."""
    recipe = loaded.recipe
    prefixes = (*_PREFIXES, *(_TRACKERS[name] for name in recipe.trainer.loggers if name in _TRACKERS))
    needed = {*_NAMES, *variable_names(loaded.unresolved), *_key_variables(loaded.unresolved)}
    if recipe.agent.aworld:
        needed |= _key_variables(_agent_file(recipe))
    if loaded.unresolved.get("env", {}).get("mcp_servers") and isinstance(recipe.env.mcp_servers, str):
        needed |= read_client_servers(Path(recipe.env.mcp_servers).expanduser()).references
    variables = {
        name: value
        for name, value in os.environ.items()
        if value and (name in needed or name.startswith(prefixes))
    }
    if recipe.env.started_from is None:
        settings = env.connection_settings()
        variables |= {name: settings[name] for name in _CONNECTION if name in settings}
    return variables


def _key_variables(tree: Any) -> set[str]:
    return {
        value for path, value in leaves(tree) if path[-1:] == ("key_variable",) and isinstance(value, str)
    }


def _agent_file(recipe: Recipe) -> Any:
    try:
        return yaml.safe_load(Path(str(recipe.agent.aworld)).read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return None  # the check of the recipe says what is wrong with it
