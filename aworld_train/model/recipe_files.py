"""Checks that what a recipe names is on this machine: model, tool environment, datasets; these are not read."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from aworld_train.errors import ModelError, UsageError
from aworld_train.model.check import check_model
from aworld_train.recipe.locate import commands_for
from aworld_train.recipe.schema import CassetteMode, Recipe
from aworld_train.recipe.tree import KeyPath


def file_faults(recipe: Recipe, splits: Sequence[str] = ("train", "val")) -> Iterator[tuple[KeyPath, str]]:
    """The missing files of a recipe: its key, and one sentence for each. A model's name on the hub is not looked up."""
    if recipe.model.location:
        try:
            check_model(recipe.model.location)
        except ModelError as error:
            yield ("model", "path"), f"`model.path`: {error.message}"
    if recipe.env.started_from is not None and recipe.env.cassette.mode is not CassetteMode.replay:
        from aworld_train.env.directory import find_directory

        try:
            find_directory(recipe.env.started_from)
        except UsageError as error:
            key = "docker_dir" if recipe.env.docker_dir is not None else "mcp_servers"
            yield ("env", key), f"`env.{key}`: {error.message}"
    in_split = {"train": recipe.dataset.train_files, "val": recipe.dataset.val_files}
    named = [(name, path) for name in splits for path in in_split[name]]
    for name, path in named:
        if not Path(path).expanduser().is_file():
            build = commands_for(path, "aworld-train dataset build") or "`aworld-train dataset build`"
            yield (
                ("dataset", name),
                f"`dataset.{name}`: there is no file {path}. Give an existing one, or build it with {build}; "
                "paths are relative to the current folder.",
            )
