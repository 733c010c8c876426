"""Trackers that a recipe names: whether they are installed, and variables by which they record in the run folder."""

import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from aworld_train.atomic import write_text
from aworld_train.recipe.schema import Recipe
from aworld_train.recipe.trackers import FOLDER, missing_package, missing_sentence, records_offline
from aworld_train.recipe.tree import KeyPath

TENSORBOARD = "tensorboard"
_RUN_ID_BYTES = 4
_WANDB_RUN = "wandb-run-id"
# MLflow's own defaults let one call to a server that does not answer take a quarter of an hour.
_MLFLOW_LIMITS = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2", "MLFLOW_HTTP_REQUEST_TIMEOUT": "15"}


def tracker_faults(recipe: Recipe) -> Iterator[tuple[KeyPath, str]]:
    for place, tracker in enumerate(recipe.trainer.loggers):
        if package := missing_package(tracker):
            yield ("trainer", "loggers", str(place)), missing_sentence(tracker, package)


def tracker_environment(recipe: Recipe, run_dir: Path) -> dict[str, str]:
    """Variables by which trackers write below the run folder; what the user has set stays.

    Makes the folder, and the id of the run for W&B, if they are not there.
    """
    names = recipe.trainer.loggers
    folder = run_dir.resolve() / FOLDER
    variables: dict[str, str] = {}
    if "tensorboard" in names:
        variables["TENSORBOARD_DIR"] = str(folder / TENSORBOARD)
    if "mlflow" in names:
        variables |= {"MLFLOW_TRACKING_URI": local_store(folder), **_MLFLOW_LIMITS}
    if "wandb" in names:
        # W&B makes a folder `wandb` in the first, and keeps answers that are to be uploaded in the second.
        data = folder / "wandb-data"
        variables |= {"WANDB_DIR": str(folder), "WANDB_DATA_DIR": str(data), "WANDB_RESUME": "allow"}
        if records_offline(recipe):
            variables["WANDB_MODE"] = "offline"
    if not variables:
        return {}
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if "wandb" in names:
        file = folder / _WANDB_RUN
        if not file.exists():
            write_text(file, secrets.token_hex(_RUN_ID_BYTES))
        variables["WANDB_RUN_ID"] = file.read_text().strip()
    stated = {**os.environ, **recipe.cluster.environment}
    return {name: value for name, value in variables.items() if not stated.get(name)}


def local_store(folder: Path) -> str:
    return f"sqlite:///{folder / 'mlflow' / 'mlflow.db'}"
