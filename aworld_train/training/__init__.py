"""The Python API: one trainer for every framework.

    AgentTrainer(config="recipes/quickstart.yaml").train()

``aworld-train train`` is a caller of it, so the command and the API are one path.
"""

from aworld_train.training.agent_trainer import AgentTrainer
from aworld_train.training.processor import TrainerProcessor

__all__ = ["AgentTrainer", "TrainerProcessor"]
