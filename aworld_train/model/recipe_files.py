"""Checks that the model and the datasets that a recipe names are on this machine; the datasets are not read."""

from collections.abc import Iterator
from pathlib import Path

from aworld_train.errors import ModelError
from aworld_train.model.check import check_model
from aworld_train.recipe.schema import Recipe
from aworld_train.recipe.tree import KeyPath


def file_faults(recipe: Recipe) -> Iterator[tuple[KeyPath, str]]:
    """The missing files of a recipe: its key, and one sentence for each. A model's name on the hub is not looked up."""
    if recipe.model.path:
        try:
            check_model(recipe.model.path)
        except ModelError as error:
            yield ("model", "path"), f"model.path: {error.message}"
    for split, path in (("train", recipe.dataset.train), ("val", recipe.dataset.val)):
        if path and not Path(path).expanduser().is_file():
            yield (
                ("dataset", split),
                f"dataset.{split}: there is no file {path}. Give an existing one, or build it with "
                "`aworld-train dataset build`; paths are relative to the current folder.",
            )
