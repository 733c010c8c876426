"""What a training framework must offer to be trained with: four checks and ``train``.

``AgentTrainer`` makes a processor with the run path, calls the four checks in this order, marks it as initialized, and
then may be told to train. Each check takes an object, a path, or None for "as the configuration says".
"""

from abc import ABC, abstractmethod
from typing import Any


class TrainerProcessor(ABC):
    """Base class of all frameworks.

    Args:
        run_path: directory under which runs keep their folders.
    """

    def __init__(self, run_path: str):
        self.run_path = run_path
        self.initialized = False

    @abstractmethod
    def check_agent(self, agent: Any = None) -> Any:
        """Validate the agent, or its configuration, and keep what training needs of it."""

    @abstractmethod
    def check_dataset(self, dataset: Any = None, test_dataset: Any = None) -> Any:
        """Validate training and test data, and bring them into the framework's format."""

    @abstractmethod
    def check_reward(self, reward_func: Any = None) -> Any:
        """Validate the reward function: that it can be loaded and called."""

    @abstractmethod
    def check_config(self, config: Any = None) -> Any:
        """Validate the configuration with what the other checks kept laid over it, and complete it with defaults."""

    @abstractmethod
    def train(self) -> Any:
        """Run the training. Options beyond none are the processor's own, as keyword arguments with defaults."""

    def mark_initialized(self) -> None:
        """All checks have passed."""
        self.initialized = True
