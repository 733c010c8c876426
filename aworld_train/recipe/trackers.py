"""Trackers that ``trainer.loggers`` can name: the modules they need, and whether W&B has a login. None is imported."""

import os
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from aworld_train.recipe.schema import Recipe

PACKAGES = ("wandb", "mlflow", "tensorboard", "swanlab", "clearml", "trackio")
"""The packages of trackers, each with the tracker's name."""
FOLDER = "trackers"
"""The folder in a run folder in which trackers write, unless their own variables name another place."""
_WANDB_SETTINGS = ("WANDB_API_KEY", "WANDB_IDENTITY_TOKEN_FILE", "WANDB_MODE")


def missing_package(tracker: str) -> str | None:
    """The package to install for a tracker; None if nothing is missing."""
    if tracker not in PACKAGES:
        return None
    if find_spec(tracker) is None:
        return tracker
    # `mlflow-skinny` has the same module, and no database, in which runs are recorded unless another place is named.
    is_local = tracker == "mlflow" and not os.environ.get("MLFLOW_TRACKING_URI")
    return "mlflow" if is_local and find_spec("sqlalchemy") is None else None


def missing_sentence(tracker: str, package: str) -> str:
    return f"trainer.loggers names {tracker}, and {package} is not installed: pip install {package}."


def has_wandb_login(variable: Callable[[str], str | None], home: Path) -> bool:
    """Whether W&B finds a key, or is told by ``WANDB_MODE`` what to do without one."""
    if any(variable(name) for name in _WANDB_SETTINGS):
        return True
    netrc = Path(variable("NETRC") or home / ".netrc")
    return netrc.is_file() and "wandb" in netrc.read_text(encoding="utf-8", errors="replace")


def records_offline(recipe: Recipe) -> bool:
    """Whether the run is recorded by W&B on this machine's disk alone, for want of a login."""
    variables = {**os.environ, **recipe.cluster.environment}
    return "wandb" in recipe.trainer.loggers and not has_wandb_login(variables.get, Path.home())


def tracker_remarks(recipe: Recipe, run_dir: Path) -> list[str]:
    if not records_offline(recipe):
        return []
    return [
        "W&B has no login (WANDB_API_KEY, or `wandb login`): it records the run offline. Upload it afterwards: "
        f"wandb sync {run_dir / FOLDER / 'wandb' / 'latest-run'}"
    ]
