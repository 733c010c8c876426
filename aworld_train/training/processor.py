"""The interface of a training processor.

``AgentTrainer`` calls the four checks in the order of this file, marks the processor as initialized, and calls
``train`` when the user does. Each check takes an object, a path, or None, for which the configuration decides.
"""

from abc import ABC, abstractmethod
from typing import Any


class TrainerProcessor(ABC):
    """Base class of training processors; runs keep their folders below ``run_path``."""

    def __init__(self, run_path: str):
        self.run_path = run_path
        self.initialized = False

    @abstractmethod
    def check_agent(self, agent: Any = None) -> Any:
        """Validate and store the agent or its configuration."""

    @abstractmethod
    def check_dataset(self, dataset: Any = None, test_dataset: Any = None) -> Any:
        """Validate training and test data, and convert them into the framework's format."""

    @abstractmethod
    def check_reward(self, reward_func: Any = None) -> Any:
        """Check that the reward function can be loaded and called."""

    @abstractmethod
    def check_config(self, config: Any = None) -> Any:
        """Validate the configuration, merged with the results of the other checks, and fill in defaults."""

    @abstractmethod
    def train(self) -> Any:
        """Run the training; a subclass may add options, as keyword arguments with defaults."""
