"""The script of a job, from the template ``job.sbatch``."""

import shlex
from importlib.resources import files
from pathlib import Path
from string import Template

from aworld_train.launch.job import RECIPE, job_command, job_recipe
from aworld_train.recipe import LoadedRecipe
from aworld_train.recipe.device import on_cpu
from aworld_train.recipe.schema import Recipe
from aworld_train.training.run_files import LAUNCH_FOLDER

LOG = "job-%j.log"
"""The job's log below the folder of the launch; SLURM replaces ``%j`` by the job's number."""
_TEMPLATE = "job.sbatch"
SCRIPT = f"{LAUNCH_FOLDER}/{_TEMPLATE}"


class _Template(Template):
    """A template whose placeholders are no shell variables."""

    delimiter = "@"


def job_files(loaded: LoadedRecipe, folder: Path, runs: Path, *, resume: bool) -> dict[str, str]:
    template = _Template((files("aworld_train.launch.slurm") / _TEMPLATE).read_text())
    options = sbatch_options(loaded.recipe, folder.resolve() / LAUNCH_FOLDER)
    script = template.substitute(
        name=loaded.recipe.name,
        options="\n".join(f"#SBATCH {option}" for option in options),
        setup="\n".join(loaded.recipe.cluster.slurm.setup),
        command=shlex.join(job_command(folder.resolve() / RECIPE, runs, "slurm", resume=resume)),
    )
    return {SCRIPT: script, **job_recipe(loaded)}


def sbatch_options(recipe: Recipe, folder: Path) -> list[str]:
    """The options of sbatch for a recipe; the recipe's own come last, and so take precedence."""
    cluster, section = recipe.cluster, recipe.cluster.slurm
    on_gpus = not on_cpu(recipe)
    cores = section.cpus_per_node
    options = {
        "job-name": f"aworld-{recipe.name}",
        "nodes": cluster.nodes,
        "ntasks-per-node": 1,
        "cpus-per-task": cores,
        "gres": f"gpu:{cluster.gpus_per_node}" if on_gpus else None,
        "partition": section.partition,
        "account": section.account,
        "time": section.time,
        "signal": f"B:USR1@{section.save_before}",
        # A percent sign of the path is doubled, because SLURM takes one for a placeholder.
        "output": f"{str(folder).replace('%', '%%')}/{LOG}",
        "open-mode": "append",
    }
    return [
        *(f"--{name}={shlex.quote(str(value))}" for name, value in options.items() if value is not None),
        *(("--exclusive",) if cores is None else ()),
        "--requeue",
        *section.options,
    ]
