"""Trains with any framework: merges its arguments into one recipe, checks it, compiles it once and runs it."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from aworld_train import recipe as recipes
from aworld_train.adapter.base import RunPlan, TrainingFramework, find, framework_of
from aworld_train.agent import check_agent
from aworld_train.atomic import check_writable
from aworld_train.dataset import FileSummary
from aworld_train.errors import UsageError
from aworld_train.model.check import check_model
from aworld_train.model.files import fetch
from aworld_train.model.tool_parser import check_tool_parser
from aworld_train.recipe import LoadedRecipe
from aworld_train.recipe.keys import DEFAULT_FRAMEWORK
from aworld_train.recipe.schema import LauncherName, Recipe
from aworld_train.recipe.tree import merge
from aworld_train.reward.loading import is_reward_function, load_function, name_reward
from aworld_train.reward.scorers import find_scorer
from aworld_train.training.arguments.agent import AgentArgument, agent_argument
from aworld_train.training.arguments.config import config_argument
from aworld_train.training.arguments.dataset import dataset_argument
from aworld_train.training.disk_need import check_disk, disk_need, parameters_here
from aworld_train.training.placement import Placement, check_gpus
from aworld_train.training.processor import TrainerProcessor
from aworld_train.training.recipe_checks import check_data
from aworld_train.training.run_folder import check_run_folder
from aworld_train.training.run_models import RunModel, run_model, with_model
from aworld_train.training.screen import train_progress
from aworld_train.training.summary import RunSummary
from aworld_train.training.teacher import check_tokens, with_teacher

_WRITTEN = ".data"
"""The folder below the run path for agents and datasets that a program gives as objects."""


class FrameworkProcessor(TrainerProcessor):
    """Trains with the framework that the recipe names, or else with ``framework``.

    ``check_config`` comes last and checks the merged recipe; explicit arguments take precedence over the recipe.
    """

    def __init__(self, run_path: str, framework: str = DEFAULT_FRAMEWORK):
        super().__init__(run_path)
        self._framework_name = framework
        self._framework: TrainingFramework | None = None
        self._plan: RunPlan | None = None
        self._model: RunModel | None = None
        self._explicit: dict[str, dict[str, Any]] = {}
        self._agent = AgentArgument({})
        self._data: dict[str, Any] = {}
        self.loaded: LoadedRecipe | None = None
        self.data: dict[str, FileSummary] = {}

    def check_agent(self, agent: Any = None) -> dict[str, Any]:
        """Store the agent; an AWorld object is written once the recipe's name is known."""
        self._agent = agent_argument(agent)
        return dict(self._agent.section)

    def check_dataset(self, dataset: Any = None, test_dataset: Any = None) -> dict[str, Any]:
        """Store the datasets; they are built and checked with the recipe, which has the run's name."""
        self._data = {
            split: data for split, data in (("train", dataset), ("val", test_dataset)) if data is not None
        }
        return self._data

    def check_reward(self, reward_func: Any = None) -> str | None:
        """Store the name by which a run's processes load the reward.

        A function with a reward function's arguments replaces all scorers; any other becomes the scorer of all tasks.
        """
        if reward_func is None:
            return None
        spec = reward_func if isinstance(reward_func, str) else name_reward(reward_func)
        if ":" in spec and is_reward_function(load_function(spec)):
            self._explicit["reward"] = {"function": spec}
        else:
            find_scorer(spec)
            self._explicit["reward"] = {"scorer": spec}
        return spec

    def check_config(self, config: Any = None) -> Recipe:
        """Merge the stored arguments into the recipe and check it: keys, values, model, data, reward, the framework."""
        if "${" in (runs := str(Path(self.run_path).absolute())):
            raise UsageError(
                f"The folder of the runs, {runs}, has '${{' in its path, which frameworks read as a reference: "
                "take another with --runs (run_path), and have model and data elsewhere too."
            )
        check_writable(Path(self.run_path), "the runs (--runs, run_path)")
        loaded = self._load(config_argument(config, find(self._framework_name)))
        name, folder = loaded.recipe.name, Path(self.run_path) / _WRITTEN
        given: dict[str, Any] = {}
        if section := self._agent.section_in(folder, name):
            given["agent"] = section
        if files := {
            split: str(dataset_argument(data, folder, name, split, _say))
            for split, data in self._data.items()
        }:
            given["dataset"] = files
        loaded = self._load(loaded, given) if given else loaded
        self._model = run_model(loaded.recipe, Path(self.run_path), self.run_dir(loaded.recipe))
        recipe = with_model(loaded.recipe, self._model)
        check_model(recipe.model.location)
        check_tool_parser(recipe.model.location, recipe.agent.tool_parser)
        self.data = check_data(recipe)
        if recipe.trainer.epochs is not None:
            # The steps are known only with the data. A resumed run has the same, because its data must not change.
            steps = recipe.trainer.epochs * (self.data["train"].rows // recipe.trainer.batch_size)
            recipe = replace(recipe, trainer=replace(recipe.trainer, steps=max(1, steps)))
        check_agent(asdict(recipe.agent))
        self._framework = framework_of(recipe)
        recipe = with_teacher(recipe, self._framework)
        self._plan = self._framework.compile(recipe, self.run_dir(recipe))
        self.loaded = replace(loaded, recipe=recipe)
        return recipe

    def run_dir(self, recipe: Recipe) -> Path:
        return Path(self.run_path) / recipe.name

    @property
    def checked(self) -> LoadedRecipe:
        return self._checked()[0]

    def train(
        self, *, resume: bool = False, quiet: bool = False, placement: Placement | None = None
    ) -> RunSummary:
        """Train to the recipe's last step, with progress on stderr; a launcher gives the ``placement``."""
        from aworld_train.training.run import train

        loaded, framework, plan = self._checked()
        launcher = loaded.recipe.cluster.launcher
        if launcher is not LauncherName.local and placement is None:
            raise UsageError(
                f"The recipe's launcher is {launcher.value} (cluster.launcher), and only the command `aworld-train "
                "train` launches. Use it, or set cluster.launcher=local."
            )
        placement = placement or Placement()
        if placement.is_this_machine:
            check_gpus(loaded.recipe)
        run_dir, model = self.run_dir(loaded.recipe), loaded.recipe.model.location
        say = (lambda _: None) if quiet else _say
        fetched = [fetch(name, say) for name in (model, loaded.recipe.teacher) if name is not None]
        if any(fetched):
            check_tokens(loaded.recipe)
            plan = framework.compile(loaded.recipe, run_dir)  # which may read the model's configuration
        need = disk_need(loaded.recipe, parameters_here(model))
        check_disk(need, run_dir, loaded.recipe.trainer.keep_checkpoints)
        progress = train_progress(Console(stderr=True), quiet=quiet)
        if need.sentence:
            progress.note(need.sentence)
        return train(
            loaded,
            framework,
            plan,
            run_dir,
            model=self._model,
            train_data=self.data["train"],
            val_data=self.data["val"],
            resume=resume,
            progress=progress,
            placement=placement,
        )

    def plan_in(self, folder: Path) -> RunPlan:
        """The plan with ``folder`` as its run folder; writes nothing."""
        loaded, framework, _ = self._checked()
        return framework.compile(loaded.recipe, folder)

    def check_run_folder(self, folder: Path, *, resume: bool = False) -> None:
        check_run_folder(folder, self._checked()[2].files, resume=resume)

    def _checked(self) -> tuple[LoadedRecipe, TrainingFramework, RunPlan]:
        if self.loaded is None or self._framework is None or self._plan is None:
            raise ValueError("check_config has not been called.")
        return self.loaded, self._framework, self._plan

    def _load(self, config: Any, overrides: Mapping[str, Any] | None = None) -> LoadedRecipe:
        loaded = (
            config if isinstance(config, LoadedRecipe) else recipes.read({} if config is None else config)
        )
        explicit = merge(self._explicit, overrides or {})
        unresolved = loaded.unresolved
        if self._framework_name != DEFAULT_FRAMEWORK:
            if loaded.recipe.trainer.framework not in (DEFAULT_FRAMEWORK, self._framework_name):
                raise UsageError(
                    f"The recipe names the framework {loaded.recipe.trainer.framework} (trainer.framework), and "
                    f"train_engine_name is {self._framework_name!r}. Give one of them, or the same twice."
                )
            # A complete recipe has a section of its framework, which means nothing to another one.
            unresolved = {
                key: value for key, value in unresolved.items() if key != DEFAULT_FRAMEWORK or value
            }
            explicit = merge(explicit, {"trainer": {"framework": self._framework_name}})
        return recipes.read(merge(unresolved, explicit)) if explicit else loaded


def _say(line: str) -> None:
    Console(stderr=True).print(line, markup=False, highlight=False, soft_wrap=True)
