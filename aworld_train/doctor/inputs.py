"""Files that the recipe names and that a run reads before its first step."""

from collections.abc import Iterator
from pathlib import Path

from aworld_train.doctor.finding import Finding, fail, ok
from aworld_train.doctor.machine import Machine
from aworld_train.doctor.needs import Needs
from aworld_train.recipe.env_text import shown
from aworld_train.recipe.locate import commands_for


def check_inputs(machine: Machine, needs: Needs) -> Iterator[Finding]:
    recipe = needs.recipe
    if recipe is None:
        yield ok("inputs", "No recipe, so no files to look for.")
        return
    files = [
        *(("dataset.train", path) for path in recipe.dataset.train_files),
        *(("dataset.val", path) for path in recipe.dataset.val_files),
        ("env.env_file", recipe.env.env_file),
        ("env.data", recipe.env.data),
        ("agent.aworld", recipe.agent.aworld),
        ("reward.judge.prompt", recipe.reward.judge.prompt),
    ]
    missing = 0
    for key, path in files:
        if path is not None and not (machine.folder / Path(path).expanduser()).exists():
            missing += 1
            build = commands_for(str(path), "aworld-train dataset build") or "aworld-train dataset build"
            remedy = f"Make it first ({build}), or correct the recipe."
            yield fail("inputs", f"There is no {shown(path)} ({key}).", remedy)
    if not missing:
        count = sum(path is not None for _, path in files)
        yield ok("inputs", f"All {count} files that the recipe names are there.")
