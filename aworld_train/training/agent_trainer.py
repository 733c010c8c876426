"""``AgentTrainer``: agent, data, reward and configuration in, a trained agent out, whatever the framework."""

from typing import Any, ClassVar

from aworld_train.adapter.base import framework_names
from aworld_train.errors import UsageError, nearest
from aworld_train.recipe.keys import DEFAULT_FRAMEWORK
from aworld_train.training.processor import TrainerProcessor


class AgentTrainer:
    """Trains an agent with one of the registered frameworks.

    Everything is checked when the trainer is made, before anything heavy starts. What is given here wins over what
    the configuration says; what is not given is taken from it.

    Args:
        agent: an agent section (object or mapping), a YAML file holding one, or None.
        config: a recipe: path, mapping, ``Recipe`` or ``LoadedRecipe``; None for the defaults.
        reward_func: a function, ``module:function``, ``file.py:function``, or None.
        train_dataset: path of a Parquet file, a ``pyarrow.Table``, a list of rows, anything with ``to_parquet``, or
            None.
        test_dataset: as ``train_dataset``; validation data.
        run_path: directory under which the run's folder is made.
        train_engine_name: what to train with: a processor's name, or a framework's; the recipe's ``trainer.framework``
            decides where this is left out.

    Raises:
        UsageError: the framework is not registered.
        AworldTrainError: a check failed.
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
        self.agent = agent
        self.config = config
        self.reward_func = reward_func
        self.train_dataset = train_dataset
        self.test_dataset = test_dataset
        self.run_path = str(run_path)
        self.train_engine_name = train_engine_name
        self.train_processor = self._processor(train_engine_name, self.run_path)
        self.train_processor.check_agent(agent)
        self.train_processor.check_dataset(train_dataset, test_dataset)
        self.train_processor.check_reward(reward_func)
        self.train_processor.check_config(config)
        self.train_processor.mark_initialized()

    def train(self, **options: Any) -> Any:
        """Start the training and wait for its end.

        Args:
            **options: keyword arguments of the processor's own ``train``.

        Returns:
            What the processor returns; for frameworks, the run's summary.

        Raises:
            ValueError: the processor has not been initialized.
        """
        if not self.train_processor.initialized:
            raise ValueError("The training processor has not passed its checks.")
        return self.train_processor.train(**options)

    @classmethod
    def register_processor(cls, train_engine_name: str, train_type: type[TrainerProcessor]) -> None:
        """Make a framework known under a name.

        Raises:
            TypeError: it is not a subclass of ``TrainerProcessor``.
        """
        if not (isinstance(train_type, type) and issubclass(train_type, TrainerProcessor)):
            raise TypeError(f"{train_type!r} is not a subclass of TrainerProcessor")
        cls._processors[train_engine_name] = train_type

    @classmethod
    def unregister_processor(cls, train_engine_name: str) -> None:
        """Forget a processor; one that is not known is an error.

        Raises:
            UsageError: there is none of that name.
        """
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
        hint = nearest(name, names)
        return (
            f"There is no training framework {name!r}"
            + (f"; did you mean {hint!r}?" if hint else f"; known: {', '.join(names)}.")
            + " Register your own with AgentTrainer.register_processor, or as a framework (see "
            "aworld_train.adapter.base)."
        )
