"""Checks that the model and the datasets that a recipe names are on this machine; the datasets are not read."""

from collections.abc import Iterator
from pathlib import Path

from aworld_train.errors import ModelError
from aworld_train.model.check import check_model
from aworld_train.recipe.schema import Recipe
from aworld_train.recipe.tree import KeyPath


def file_faults(recipe: Recipe) -> Iterator[tuple[KeyPath, str]]:
    """The missing files of a recipe: its key, and one sentence for each. A model's name on the hub is not looked up."""
    if recipe.model.location:
        try:
            check_model(recipe.model.location)
        except ModelError as error:
            yield ("model", "path"), f"`model.path`: {error.message}"
    files = [("train", path) for path in recipe.dataset.train_files]
    files += [("val", path) for path in recipe.dataset.val_files]
    for split, path in files:
        if not Path(path).expanduser().is_file():
            yield (
                ("dataset", split),
                f"`dataset.{split}`: there is no file {path}. Give an existing one, or build it with "
                "`aworld-train dataset build`; paths are relative to the current folder.",
            )
