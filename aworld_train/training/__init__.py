"""The Python API: one trainer for every framework.

    AgentTrainer(config="recipes/quickstart.yaml").train()

The command ``aworld-train train`` calls ``AgentTrainer`` too, so that both behave the same.
"""

from aworld_train.training.agent_trainer import AgentTrainer
from aworld_train.training.processor import TrainerProcessor

__all__ = ["AgentTrainer", "TrainerProcessor"]
