"""Trains with any framework: gathers what was given into one recipe, checks it whole, compiles it once and runs it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from rich.console import Console

from aworld_train import recipe as recipes
from aworld_train.adapter.base import RunMode, RunPlan, TrainingFramework, framework_of
from aworld_train.adapter.episodes.files import write_files
from aworld_train.agent import check_agent
from aworld_train.dataset import FileSummary, check_file
from aworld_train.errors import DatasetError, RecipeError, UsageError
from aworld_train.model.check import check_model
from aworld_train.recipe import LoadedRecipe
from aworld_train.recipe.keys import DEFAULT_FRAMEWORK
from aworld_train.recipe.reward_checks import check_rewards
from aworld_train.recipe.schema import Recipe
from aworld_train.recipe.tree import merge
from aworld_train.reward.loading import is_reward_function, load_function
from aworld_train.reward.naming import name_reward
from aworld_train.reward.scorers import find_scorer
from aworld_train.training.processor import TrainerProcessor
from aworld_train.training.progress import progress_for
from aworld_train.training.summary import RunSummary


class FrameworkProcessor(TrainerProcessor):
    """Trains with the framework that the recipe names in ``trainer.framework``.

    ``check_config`` comes last and sees everything, so explicit arguments win over the recipe.

    Args:
        run_path: Directory under which runs keep their folders.
        framework: Name of the framework of recipes that name none.
    """

    def __init__(self, run_path: str, framework: str = DEFAULT_FRAMEWORK):
        super().__init__(run_path)
        self._framework_name = framework
        self._framework: TrainingFramework | None = None
        self._plan: RunPlan | None = None
        self._explicit: dict[str, dict[str, Any]] = {}
        self._tables: dict[str, Any] = {}
        self.loaded: LoadedRecipe | None = None
        self.data: dict[str, FileSummary] = {}

    def check_agent(self, agent: Any = None) -> dict[str, Any]:
        """Keep an agent section: an object of the schema, a mapping, or a YAML file with one.

        Raises:
            UsageError: something else was given.
        """
        section = _agent_section(agent)
        if section:
            self._explicit["agent"] = section
        return section

    def check_dataset(self, dataset: Any = None, test_dataset: Any = None) -> dict[str, Any]:
        """Keep the data given; files are checked at once, tables when they have been written below the run path.

        Raises:
            DatasetError: a file is not what can be trained on.
        """
        for split, data in (("train", dataset), ("val", test_dataset)):
            if data is None:
                continue
            if isinstance(data, str | Path):
                check_file(Path(data))
                self._explicit.setdefault("dataset", {})[split] = str(data)
            else:
                self._tables[split] = data
        return {**self._explicit.get("dataset", {}), **self._tables}

    def check_reward(self, reward_func: Any = None) -> str | None:
        """Keep the reward by the name under which a run's processes can load it.

        Args:
            reward_func: a function, or where it is; with a reward function's arguments it takes the place of all
                scorers, else it is the scorer of all tasks, in place of their own. The name of a scorer is one too.

        Raises:
            RewardError: it cannot be loaded by name, or not called as a reward function or a scorer is.
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
        """Lay what was given over the recipe and check all of it: keys, values, model, data, reward, the framework.

        Raises:
            AworldTrainError: the first thing that is wrong.
        """
        loaded = self._load(config)
        recipe = loaded.recipe
        tables = {
            split: _write_table(table, self.run_dir(recipe), split) for split, table in self._tables.items()
        }
        if tables:
            loaded = self._load(loaded, {"dataset": {split: str(path) for split, path in tables.items()}})
            recipe = loaded.recipe
        check_model(recipe.model.path)
        self.data = {split: _checked(recipe, split) for split in ("train", "val")}
        if self.data["train"].rows < recipe.trainer.batch_size:
            raise DatasetError(
                f"{recipe.dataset.train} has {self.data['train'].rows} tasks, fewer than one step takes "
                f"(trainer.batch_size is {recipe.trainer.batch_size})."
            )
        tasks = self.data.values()
        check_rewards(
            recipe,
            scorers={name for summary in tasks for name in summary.scorers},
            schemas={name for summary in tasks for name in summary.answer_schemas},
        )
        check_agent(asdict(recipe.agent))
        self._framework = framework_of(recipe)
        self._plan = self._framework.compile(recipe, self.run_dir(recipe), RunMode.train)
        self.loaded = loaded
        return recipe

    def run_dir(self, recipe: Recipe) -> Path:
        """The folder of the recipe's run."""
        return Path(self.run_path) / recipe.name

    def train(self, *, resume: bool = False, quiet: bool = False) -> RunSummary:
        """Train to the recipe's last step, showing progress on stderr.

        Args:
            resume: go on with an earlier run of the same recipe.
            quiet: show no progress.

        Raises:
            AworldTrainError: the run failed; its ``summary.json`` says how far it got.
        """
        from aworld_train.training.run import train

        loaded, framework, plan = self._checked()
        return train(
            loaded,
            framework,
            plan,
            self.run_dir(loaded.recipe),
            train_data=self.data["train"],
            val_data=self.data["val"],
            resume=resume,
            progress=progress_for(Console(stderr=True), quiet=quiet),
        )

    def write_plan(self) -> tuple[Path, RunPlan]:
        """Write the framework's files without running it; the run folder and the plan."""
        loaded, _, plan = self._checked()
        run_dir = self.run_dir(loaded.recipe)
        write_files(run_dir, plan.files)
        return run_dir, plan

    def _checked(self) -> tuple[LoadedRecipe, TrainingFramework, RunPlan]:
        if self.loaded is None or self._framework is None or self._plan is None:
            raise ValueError("check_config has not been called.")
        return self.loaded, self._framework, self._plan

    def _load(self, config: Any, more: Mapping[str, Any] | None = None) -> LoadedRecipe:
        """The configuration as a loaded recipe, with everything given explicitly laid over it."""
        loaded = (
            config if isinstance(config, LoadedRecipe) else recipes.read({} if config is None else config)
        )
        explicit = merge(self._explicit, more or {})
        if self._framework_name != DEFAULT_FRAMEWORK:
            explicit = merge(explicit, {"trainer": {"framework": self._framework_name}})
        return recipes.read(merge(loaded.unresolved, explicit)) if explicit else loaded


def _agent_section(agent: Any) -> dict[str, Any]:
    if agent is None:
        return {}
    if isinstance(agent, str | Path):
        import yaml

        try:
            read = yaml.safe_load(Path(agent).read_text(encoding="utf-8"))
        except (OSError, yaml.YAMLError) as error:
            raise UsageError(f"The agent file {agent} cannot be read: {error}") from None
        if not isinstance(read, dict):
            raise UsageError(
                f"The agent file {agent} holds no mapping; it should look like the agent section of a recipe."
            )
        return dict(read.get("agent", read))
    if is_dataclass(agent) and not isinstance(agent, type):
        return {
            key: value.value if isinstance(value, Enum) else value for key, value in asdict(agent).items()
        }
    if isinstance(agent, Mapping):
        return dict(agent)
    raise UsageError(
        f"An agent is an agent section (object or mapping) or a YAML file holding one, not a {type(agent).__name__}."
    )


def _checked(recipe: Recipe, split: str) -> FileSummary:
    path = getattr(recipe.dataset, split)
    if not path:
        raise RecipeError(
            f"dataset.{split} is not set: training needs a Parquet file of "
            f"{'training' if split == 'train' else 'validation'} tasks; make one with `aworld-train dataset build`."
        )
    summary = check_file(Path(path))
    other = set(summary.agents) - {recipe.agent.name}
    if other:
        raise DatasetError(
            f"{path} has rows for the agent {', '.join(sorted(other))}, but the recipe trains {recipe.agent.name} "
            "(agent.name)."
        )
    return summary


def _write_table(table: Any, run_dir: Path, split: str) -> Path:
    """Write rows given as an object into the run folder, as a file like any other."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = run_dir.parent / ".data"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{run_dir.name}-{split}.parquet"
    if isinstance(table, pa.Table):
        pq.write_table(table, path)
    elif isinstance(table, Sequence):
        pq.write_table(pa.Table.from_pylist(list(table)), path)
    else:
        write: Callable[[str], object] | None = getattr(table, "to_parquet", None)
        if write is None:
            raise DatasetError(
                f"The {split} dataset is a {type(table).__name__}; give a Parquet file, a pyarrow.Table, a list of "
                "rows, or an object with to_parquet."
            )
        write(str(path))
    return path
