"""Options that the commands of ``aworld-train reward`` share."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aworld_train.errors import UsageError

if TYPE_CHECKING:
    from aworld_train.reward.settings import RewardSettings

RecipeOption = Annotated[
    str | None,
    typer.Option(
        "--recipe", "-r", metavar="RECIPE", help="Score as this recipe's runs do; a file or a name."
    ),
]
DatasetOption = Annotated[
    Path | None,
    typer.Option("--dataset", metavar="FILE", help="Tasks by id: parquet, or JSON lines with id and answer."),
]


def settings_from(recipe: str | None, overrides: list[str] | None) -> "RewardSettings":
    from aworld_train.reward.settings import RewardSettings

    if recipe is None:
        if overrides:
            raise UsageError(f"{overrides[0]} changes a recipe; name the recipe with --recipe.")
        return RewardSettings()
    from aworld_train import recipe as recipes
    from aworld_train.recipe.reward_settings import reward_settings

    loaded = recipes.load(recipe, overrides or [])
    if loaded.env.token:  # `code_tests` reads it from the environment, because settings hold no secrets
        os.environ["MCP_SERVER_TOKEN"] = loaded.env.token
    return reward_settings(loaded)
