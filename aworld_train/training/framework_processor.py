"""Trains with any framework: merges its arguments into one recipe, checks it, compiles it once and runs it."""

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

    ``check_config`` comes last and checks the merged recipe; explicit arguments take precedence over the recipe.

    Args:
        run_path: Directory under which runs keep their folders.
        framework: Name of the framework for recipes that name none.
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
        """Store an agent section: an object of the schema, a mapping, or a YAML file with one.

        Raises:
            UsageError: The argument is something else.
        """
        section = _agent_section(agent)
        if section:
            self._explicit["agent"] = section
        return section

    def check_dataset(self, dataset: Any = None, test_dataset: Any = None) -> dict[str, Any]:
        """Store the datasets; files are checked at once, tables after they have been written below the run path.

        Raises:
            DatasetError: A file cannot be trained on.
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
        """Store the reward by the name under which a run's processes can load it.

        Args:
            reward_func: A function, its ``module:function`` or ``file.py:function``, or a scorer's name. A function
                with a reward function's arguments replaces all scorers; any other becomes the scorer of all tasks.

        Raises:
            RewardError: It cannot be loaded by name, or cannot be called as a reward function or a scorer.
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
        """Merge the stored arguments into the recipe and check it: keys, values, model, data, reward, the framework.

        Raises:
            AworldTrainError: A check failed; the first failure is reported.
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
            resume: Go on with an earlier run of the same recipe.
            quiet: Show no progress.

        Raises:
            AworldTrainError: The run failed; its ``summary.json`` says how far it got.
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
        """Write the framework's files without running it; returns the run folder and the plan."""
        loaded, _, plan = self._checked()
        run_dir = self.run_dir(loaded.recipe)
        write_files(run_dir, plan.files)
        return run_dir, plan

    def _checked(self) -> tuple[LoadedRecipe, TrainingFramework, RunPlan]:
        if self.loaded is None or self._framework is None or self._plan is None:
            raise ValueError("check_config has not been called.")
        return self.loaded, self._framework, self._plan

    def _load(self, config: Any, overrides: Mapping[str, Any] | None = None) -> LoadedRecipe:
        """The configuration as a loaded recipe, with the stored arguments and ``overrides`` merged into it."""
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


def _agent_section(agent: Any) -> dict[str, Any]:
    if agent is None:
        return {}
    if isinstance(agent, str | Path):
        import yaml

        try:
            section = yaml.safe_load(Path(agent).read_text(encoding="utf-8"))
        except (OSError, yaml.YAMLError) as error:
            raise UsageError(f"The agent file {agent} cannot be read: {error}") from None
        if not isinstance(section, dict):
            raise UsageError(
                f"The agent file {agent} holds no mapping; it should look like the agent section of a recipe."
            )
        return dict(section.get("agent", section))
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
    other_agents = set(summary.agents) - {recipe.agent.name}
    if other_agents:
        raise DatasetError(
            f"{path} has rows for the agent {', '.join(sorted(other_agents))}, but the recipe trains "
            f"{recipe.agent.name} (agent.name)."
        )
    return summary


def _write_table(table: Any, run_dir: Path, split: str) -> Path:
    """Write a dataset passed as an object into a Parquet file beside the run folder."""
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
