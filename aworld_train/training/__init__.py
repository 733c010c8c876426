"""The Python API, ``AgentTrainer(config="recipes/quickstart.yaml").train()``, which the command line calls too.

Names are imported on first use, so that what only checks a recipe does not import what runs one.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aworld_train.training.agent_trainer import AgentTrainer as AgentTrainer
    from aworld_train.training.processor import TrainerProcessor as TrainerProcessor


_HOMES = {"AgentTrainer": "agent_trainer", "TrainerProcessor": "processor"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
