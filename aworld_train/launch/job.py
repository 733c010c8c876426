"""What a scheduler's job runs: the command ``train`` once more, with the recipe as it was when the job was submitted.

A job may wait for hours. Its recipe is therefore written into the run folder, with every key, all overrides applied and
references to environment variables unresolved, and edits of the original do not reach the job.
"""

import sys
from pathlib import Path

from aworld_train.recipe import LoadedRecipe, dump
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
