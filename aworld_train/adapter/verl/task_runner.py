"""VeRL's controller, keeping what the environment gave out of what it prints, writes and sends.

VeRL resolves its configuration once, prints it, and gives it to every tracker (Weights & Biases, MLflow, ...). Here
both get it as ``verl.yaml`` has it, with ``${oc.env:NAME}`` for a value that is nobody else's business.

Ray copies the class to its process by value, so that it may refer only to things that can be imported there.
"""

import inspect
import sys
from pathlib import Path
from pprint import pformat
from typing import Any

import ray
from omegaconf import OmegaConf
from verl.trainer import main_ppo
from verl.trainer.ppo.v1 import trainer_base


@ray.remote
class TaskRunner(main_ppo.TaskRunnerV1.__ray_metadata__.modified_class):  # type: ignore[misc]
    """VeRL's ``TaskRunnerV1``, discreet."""

    def run(self, config: Any) -> None:
        """Train, as VeRL does."""
        inherited = super().run
        # Ray wraps methods, and copies VeRL's class by value: what `run` calls is not what its module has.
        called_by_run = inspect.unwrap(inherited.__func__).__globals__
        keep_references(OmegaConf.to_container(config, resolve=False), called_by_run)
        inherited(config)


def keep_references(config: Any, called_by_run: dict[str, Any]) -> None:
    """Have VeRL, in this process, show ``config`` and no other; and write what the model said for its owner alone.

    Args:
        config: The configuration with references.
        called_by_run: Functions that VeRL's ``run`` calls, by name; changed.
    """
    tracking, write = trainer_base.Tracking, trainer_base.PPOTrainer._write_generations

    def show(_: Any) -> None:
        sys.stdout.write(f"{pformat(config)}\n")

    def track(**options: Any) -> Any:
        return tracking(**{**options, "config": config})

    def write_privately(*arguments: Any) -> None:
        *_, folder, step = arguments
        Path(folder).mkdir(parents=True, exist_ok=True)
        Path(folder, f"{step}.jsonl").touch(mode=0o600)  # VeRL opens it again and keeps the mode
        write(*arguments)

    called_by_run["pprint"] = show
    trainer_base.Tracking = track
    trainer_base.PPOTrainer._write_generations = staticmethod(write_privately)
