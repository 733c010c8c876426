"""What a scheduler's job runs: the command ``train`` once more, with the recipe as it was when the job was submitted.

A job may wait for hours. Its recipe is therefore written into the run folder, with every key, all overrides applied and
references to environment variables unresolved, and edits of the original do not reach the job.
"""

import sys
from pathlib import Path

from aworld_train.atomic import write_text
from aworld_train.launch.record import launch_folder
from aworld_train.recipe import LoadedRecipe, dump

_RECIPE = "recipe.yaml"


def write_job_recipe(loaded: LoadedRecipe, run_dir: Path) -> Path:
    """Write the recipe of a job into the run folder; returns the file's absolute path."""
    file = launch_folder(run_dir).resolve() / _RECIPE
    write_text(file, dump(loaded.unresolved))
    return file


def job_command(recipe: Path, run_dir: Path, launcher: str, *, resume: bool) -> list[str]:
    """The command that a job runs.

    Args:
        recipe: The file that ``write_job_recipe`` wrote.
        run_dir: The run folder.
        launcher: The launcher's name; inside its job it runs the recipe and submits nothing.
        resume: Go on from the last checkpoint.
    """
    return [
        *(sys.executable, "-P", "-m", "aworld_train", "train", str(recipe)),
        *("--runs", str(run_dir.resolve().parent), "--launcher", launcher),
        *(("--resume",) if resume else ()),
    ]
