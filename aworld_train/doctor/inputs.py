"""Files and keys that a recipe needs; the values of keys are never shown."""

from collections.abc import Iterator
from pathlib import Path

from aworld_train.api_keys import can_be_sent
from aworld_train.doctor.finding import Finding, fail, fault, listed, ok, warn
from aworld_train.doctor.machine import Machine
from aworld_train.doctor.needs import Needs
from aworld_train.env.keys import read_keys
from aworld_train.recipe.env_text import shown
from aworld_train.recipe.locate import commands_for
from aworld_train.recipe.schema import Recipe
from aworld_train.recipe.trackers import PACKAGES, has_wandb_login


def check_inputs(machine: Machine, needs: Needs) -> Iterator[Finding]:
    recipe = needs.recipe
    if recipe is None:
        yield ok("No recipe, so no files to look for.")
        return
    files = [
        *(("dataset.train", path) for path in recipe.dataset.train_files),
        *(("dataset.val", path) for path in recipe.dataset.val_files),
        ("env.env_file", recipe.env.env_file),
        ("env.data", recipe.env.data),
        ("agent.aworld", recipe.agent.aworld),
        ("reward.judge.prompt", recipe.reward.judge.prompt),
    ]
    faults = 0
    for key, path in [("model.path", recipe.model.location), *files]:
        if path is None:
            continue
        whole = machine.folder / Path(path).expanduser()
        if whole.exists():
            if key.startswith(("model.", "dataset.")) and "${" in str(whole.resolve()):
                faults += 1
                what = f"{shown(path)} ({key}) has '${{' in its path, which frameworks read as a reference."
                yield fail(what, "Move it.")
        elif key != "model.path":  # which `check_model` looks for
            faults += 1
            build = commands_for(str(path), "aworld-train dataset") or "aworld-train dataset build"
            remedy = f"Make it first ({build}), or correct the recipe."
            yield fail(f"There is no {shown(path)} ({key}).", remedy)
    if not faults:
        count = sum(path is not None for _, path in files)
        yield ok(f"All {count} files that the recipe names are there.")


def check_keys(machine: Machine, needs: Needs) -> Iterator[Finding]:
    if needs.recipe is None:
        yield ok("No recipe, so no keys to look for.")
        return
    recipe = needs.recipe
    findings = [*_endpoints(machine, recipe), *_servers(machine, needs, recipe), *_trackers(machine, recipe)]
    yield from findings or [ok("All keys that the recipe needs are set.")]


def _endpoints(machine: Machine, recipe: Recipe) -> Iterator[Finding]:
    used = {*recipe.reward.judge.models, *recipe.agent.context.condensers, recipe.agent.context.summarizer}
    for name, endpoint in recipe.endpoints.items():
        variable = endpoint.get("key_variable")
        if variable is None:
            continue
        key = machine.variable(variable)
        if not key:
            yield fault(
                name in used,
                f"The endpoint {name} needs its key in {variable}, which is not set.",
                f"export {variable}=..., in the shell that starts the run.",
            )
        elif not can_be_sent(key):
            yield fault(
                name in used,
                f"The key in {variable} has characters that cannot be sent.",
                "Copy it again, without line breaks or quotation marks.",
            )


def _servers(machine: Machine, needs: Needs, recipe: Recipe) -> Iterator[Finding]:
    if needs.directory is None:
        return
    file = machine.folder / Path(recipe.env.env_file).expanduser() if recipe.env.env_file else None
    if file is not None and not file.is_file():
        return  # `inputs` says so
    manifest = needs.directory.manifest
    off = manifest.missing_keys({**needs.directory.values, **read_keys(manifest, file)})
    for name in recipe.env.servers:
        if name in off:
            yield fail(
                f"The tool server {name} is off without {listed(off[name])}.",
                "Put them into the file that env.env_file names, or leave the server out of env.servers.",
            )
    if off and not recipe.env.servers:
        yield warn(
            f"{len(off)} tool servers are off, because their keys are not set: {listed(sorted(off))}.",
            f"Put {listed(sorted({key for keys in off.values() for key in keys}))} into env.env_file, or name the "
            "servers that you need in env.servers.",
        )


def _trackers(machine: Machine, recipe: Recipe) -> Iterator[Finding]:
    for tracker in recipe.trainer.loggers:
        if tracker in PACKAGES and machine.version(tracker) is None:
            yield fail(
                f"trainer.loggers names {tracker}, and {tracker} is not installed.", f"pip install {tracker}"
            )
        elif tracker == "wandb" and not has_wandb_login(machine.variable, machine.home()):
            yield warn(
                "trainer.loggers names wandb, and there is no WANDB_API_KEY: the run would be recorded offline.",
                "export WANDB_API_KEY=... or run `wandb login`; WANDB_MODE=offline says that this is meant.",
            )
