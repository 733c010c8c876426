"""What is known to be wrong with a recipe before anything starts: its framework's rules, files, reward and agent."""

from collections.abc import Callable, Iterator
from dataclasses import asdict

from aworld_train.adapter.base import recipe_faults
from aworld_train.errors import AworldTrainError, DependencyMissing, RecipeError
from aworld_train.model.recipe_files import file_faults
from aworld_train.recipe.checks import missing_for_training
from aworld_train.recipe.faults import Check
from aworld_train.recipe.reward_checks import check_rewards
from aworld_train.recipe.schema import AGENT_KINDS, Recipe
from aworld_train.recipe.tree import KeyPath


def recipe_checks(*, files: bool = True, note: Callable[[str], None] | None = None) -> list[Check]:
    """The checks of a complete recipe, for ``recipe.read``.

    Args:
        files: Whether the model and the datasets must be on this machine.
        note: Takes a sentence about what cannot be checked without a package that is not installed; without it a
            missing package is an error.
    """

    def framework_faults(recipe: Recipe) -> Iterator[tuple[KeyPath, str]]:
        try:
            yield from recipe_faults(recipe)
        except DependencyMissing as error:
            if note is None:
                raise
            note(f"{recipe.trainer.framework}'s keys were not checked: {error.message}")
        except RecipeError as error:
            yield ("trainer", "framework"), error.message

    def agent_faults(recipe: Recipe) -> Iterator[tuple[KeyPath, str]]:
        kind = next((kind for kind in AGENT_KINDS if getattr(recipe.agent, kind)), None)
        if kind is None:
            return
        from aworld_train.agent import check_agent

        try:
            check_agent(asdict(recipe.agent))
        except DependencyMissing as error:
            if note is None:
                raise
            note(f"The agent was not checked: {error.message}")
        except AworldTrainError as error:
            yield ("agent", kind), error.message

    return [
        Check(missing_for_training),
        Check(framework_faults),
        *([Check(file_faults)] if files else []),
        Check(_reward_faults, sections=("reward", "endpoints")),
        Check(agent_faults, sections=("agent",)),
    ]


def _reward_faults(recipe: Recipe) -> Iterator[tuple[KeyPath, str]]:
    try:
        check_rewards(recipe)
    except DependencyMissing:
        raise
    except AworldTrainError as error:
        key = "function" if recipe.reward.function else "scorer"
        yield ("reward", key), error.message
