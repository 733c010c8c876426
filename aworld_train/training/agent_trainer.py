"""``AgentTrainer``: trains an agent from data, reward and configuration with any framework."""

from typing import Any, ClassVar

from aworld_train.adapter.base import framework_names
from aworld_train.errors import UsageError, options_as_arguments, suggestion
from aworld_train.recipe.keys import DEFAULT_FRAMEWORK
from aworld_train.training.processor import TrainerProcessor
from aworld_train.user_code import stop_if_loading

_ARGUMENTS = {
    "--resume": "train(resume=True)",
    "--runs": "AgentTrainer(run_path=...)",
    "--launcher": "the recipe's key cluster.launcher, and only the command `aworld-train train` launches",
}


class AgentTrainer:
    """Trains an agent with one of the registered frameworks.

    The constructor checks everything before anything heavy starts. Its arguments take precedence over the
    configuration, which provides all others.

    Args:
        agent: An AWorld ``Agent`` or ``Swarm``, a function that builds one, a subclass of ``AworldAgentLoop``, the name
            of either as ``module:name`` or ``file.py:name``, the path of an AWorld YAML or of a YAML file with an agent
            section, such a section (object or mapping), or None.
        config: A recipe: path, mapping, JSON or YAML text, ``Recipe`` or ``LoadedRecipe``; or a configuration of the
            framework itself, as path, mapping or text; None for the defaults.
        reward_func: A function, ``module:function``, ``file.py:function``, a scorer's name, or None.
        train_dataset: Path of a Parquet, CSV or JSONL file, a list of rows or of ``{query, answer}``, a
            ``pyarrow.Table``, a ``datasets.Dataset``, another object with ``to_parquet``, a source of tasks as
            ``file.py:function``, or None. Questions and answers are built into rows below the run path.
        test_dataset: Validation data, in the forms of ``train_dataset``.
        run_path: Directory under which the run folder is made.
        train_engine_name: Name of a processor or a framework; by default the recipe's ``trainer.framework`` is used.

    Raises:
        UsageError: The framework is not registered.
        AworldTrainError: A check failed.
    """

    _processors: ClassVar[dict[str, type[TrainerProcessor]]] = {}

    def __init__(
        self,
        agent: Any = None,
        config: Any = None,
        reward_func: Any = None,
        train_dataset: Any = None,
        test_dataset: Any = None,
        run_path: str = "./runs",
        train_engine_name: str = DEFAULT_FRAMEWORK,
    ):
        stop_if_loading()
        self.train_processor = self._processor(train_engine_name, str(run_path))
        with options_as_arguments(_ARGUMENTS):
            self.train_processor.check_agent(agent)
            self.train_processor.check_dataset(train_dataset, test_dataset)
            self.train_processor.check_reward(reward_func)
            self.train_processor.check_config(config)
        self.train_processor.initialized = True

    def train(self, **options: Any) -> Any:
        """Start the training, wait for its end and return the processor's result: for frameworks the run's summary."""
        if not self.train_processor.initialized:
            raise ValueError("The training processor has not passed its checks.")
        with options_as_arguments(_ARGUMENTS):
            return self.train_processor.train(**options)

    @classmethod
    def register_processor(cls, train_engine_name: str, train_type: type[TrainerProcessor]) -> None:
        """Make a processor known under a name."""
        if not (isinstance(train_type, type) and issubclass(train_type, TrainerProcessor)):
            raise TypeError(f"{train_type!r} is not a subclass of TrainerProcessor")
        cls._processors[train_engine_name] = train_type

    @classmethod
    def unregister_processor(cls, train_engine_name: str) -> None:
        """Remove a registered processor."""
        if train_engine_name not in cls._processors:
            raise UsageError(cls._unknown(train_engine_name))
        del cls._processors[train_engine_name]

    @classmethod
    def _processor(cls, name: str, run_path: str) -> TrainerProcessor:
        if name in cls._processors:
            return cls._processors[name](run_path)
        if name not in framework_names():
            raise UsageError(cls._unknown(name))
        from aworld_train.training.framework_processor import FrameworkProcessor

        return FrameworkProcessor(run_path, name)

    @classmethod
    def _unknown(cls, name: str) -> str:
        names = sorted({*cls._processors, *framework_names()})
        hint = suggestion(name, names, f" There are {', '.join(names)}.")
        return (
            f"Unknown training framework {name!r}.{hint} "
            "Register your own with AgentTrainer.register_processor, or as a framework (see aworld_train.adapter.base)."
        )
