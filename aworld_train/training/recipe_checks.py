"""Checks of a recipe before anything starts: its framework's rules, files, reward and agent."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from aworld_train.adapter.base import recipe_faults
from aworld_train.errors import AworldTrainError, DatasetError, DependencyMissing, RecipeError
from aworld_train.model.check import file_faults
from aworld_train.model.files import local_folder
from aworld_train.recipe.checks import missing_for_training
from aworld_train.recipe.env_text import shown
from aworld_train.recipe.faults import Check
from aworld_train.recipe.reward_checks import check_rewards
from aworld_train.recipe.schema import AGENT_KINDS, ModelSection, Recipe
from aworld_train.recipe.tree import KeyPath
from aworld_train.training.run_models import RUNS, with_run_model
from aworld_train.training.teacher import teacher_faults

if TYPE_CHECKING:
    from aworld_train.dataset import FileSummary


def recipe_checks(
    *,
    files: bool = True,
    training: bool = True,
    note: Callable[[str], None] | None = None,
    runs: Path = RUNS,
) -> list[Check]:
    """The checks of a complete recipe, for ``recipe.read``.

    With ``note``, what cannot be checked for want of a package is reported there; without it, that is an error.
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

    splits = ("train", "val") if training else ("val",)

    def all_file_faults(recipe: Recipe) -> Iterator[tuple[KeyPath, str]]:
        try:
            recipe = with_run_model(recipe, runs)
        except AworldTrainError as error:
            yield ("model", "path"), f"`model.path`: {error.message}"
            recipe = replace(recipe, model=ModelSection())
        yield from file_faults(recipe, splits)

    return [
        *([Check(missing_for_training), Check(framework_faults)] if training else []),
        *([Check(all_file_faults)] if files else []),
        *(
            [Check(partial(teacher_faults, runs=runs), sections=("model", "distill"))]
            if files and training
            else []
        ),
        Check(_reward_faults, sections=("reward", "endpoints")),
        Check(agent_faults, sections=("agent",)),
    ]


def check_data(recipe: Recipe, splits: Sequence[str] = ("train", "val")) -> "dict[str, FileSummary]":
    """What the dataset files of a recipe hold, after a check that it can be trained, or measured, on them."""
    if not recipe.plays_episodes:
        return {split: _token_rows(recipe, split) for split in splits}
    data = {split: _checked(recipe, split) for split in splits}
    if "train" in data and data["train"].rows < recipe.trainer.batch_size:
        raise RecipeError(
            f"{', '.join(map(shown, recipe.dataset.train_files))} has {data['train'].rows} tasks, fewer than one step "
            f"takes (trainer.batch_size is {recipe.trainer.batch_size})."
        )
    check_rewards(
        recipe,
        scorers={name for summary in data.values() for name in summary.scorers},
        schemas={name for summary in data.values() for name in summary.answer_schemas},
    )
    return data


def _token_rows(recipe: Recipe, split: str) -> "FileSummary":
    from aworld_train.dataset.token_rows import check_token_rows

    files: list[str] = getattr(recipe.dataset, f"{split}_files")
    summary = check_token_rows(
        list(map(Path, files)), local_folder(recipe.model.location), recipe.max_episode_tokens
    )
    needed = recipe.trainer.batch_size if split == "train" else recipe.cluster.ranks
    if summary.rows < needed:
        key = "trainer.batch_size" if split == "train" else "one for each rank"
        raise RecipeError(
            f"{', '.join(map(shown, files))} has {summary.rows} rows, fewer than {needed} ({key})."
        )
    return summary


def _checked(recipe: Recipe, split: str) -> "FileSummary":
    files: list[str] = getattr(recipe.dataset, f"{split}_files")
    if not files:
        raise RecipeError(
            f"dataset.{split} is not set: training needs a Parquet file of "
            f"{'training' if split == 'train' else 'validation'} tasks; make one with `aworld-train dataset build`."
        )
    from aworld_train.dataset import check_files

    summary = check_files(files)
    other_agents = set(summary.agents) - {recipe.agent.name}
    if other_agents:
        raise DatasetError(
            f"{', '.join(map(shown, files))} has rows for the agent {', '.join(sorted(other_agents))}, but the recipe "
            f"trains {recipe.agent.name} (agent.name)."
        )
    return summary


def _reward_faults(recipe: Recipe) -> Iterator[tuple[KeyPath, str]]:
    try:
        check_rewards(recipe)
    except DependencyMissing:
        raise
    except AworldTrainError as error:
        key = "function" if recipe.reward.function else "scorer"
        yield ("reward", key), error.message
