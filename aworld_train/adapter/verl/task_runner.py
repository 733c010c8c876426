"""VeRL's controller, which keeps values of environment variables out of everything it prints, writes and sends.

What VeRL prints and passes to trackers is the configuration as in ``verl.yaml``, with ``${oc.env:NAME}``. Ray copies
the class to its process by value, so it may use only names that can be imported in that process.
"""

import functools
import importlib
import inspect
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from pprint import pformat
from typing import Any

import ray
from omegaconf import OmegaConf
from verl.trainer import main_ppo
from verl.trainer.ppo import v1
from verl.trainer.ppo.v1 import trainer_base

from aworld_train.adapter.base import SAVE_REQUEST
from aworld_train.adapter.episodes.record import RUN_DIR_VARIABLE
from aworld_train.adapter.verl.tracked_run import as_one_run, prepare_trackers
from aworld_train.waits import begin_part, report, waiting

_TRAINER_MODULE = "aworld_train.adapter.verl.async_trainers"
"""Makes the trainers of all modes known to VeRL."""
_HEAD_RESOURCE = "node:__internal_head__"
"""Ray gives it to its head's node."""
_PARTS = (
    ("PPOTrainer", "_setup", "loading the model"),
    ("MultiTeacherModelManager", "__init__", "starting the teacher"),
    ("LLMServerManager", "create", "starting the engine"),
    ("PPOTrainer", "_load_checkpoint", "loading the checkpoint"),
    ("PPOTrainer", "fit", ""),
)
"""Where in VeRL's start a part of it begins."""


@ray.remote
class TaskRunner(main_ppo.TaskRunnerV1.__ray_metadata__.modified_class):  # type: ignore[misc]
    def run(self, config: Any) -> None:
        inherited = super().run
        # Ray wraps methods and copies VeRL's class by value, so `run` does not use the globals of its module.
        called_by_run = inspect.unwrap(inherited.__func__).__globals__
        importlib.import_module(_TRAINER_MODULE)
        run_dir = Path(os.environ[RUN_DIR_VARIABLE])
        track_as_one_run(run_dir)
        keep_references(OmegaConf.to_container(config, resolve=False), called_by_run)
        save_on_request(run_dir / SAVE_REQUEST)
        report_phases(run_dir)
        prepare_trackers(
            config.trainer.logger,
            run_dir,
            project=config.trainer.project_name,
            run=config.trainer.experiment_name,
        )
        inherited(config)

    def init_agent_loop_manager(self) -> None:
        begin_part("starting agent workers")
        super().init_agent_loop_manager()


def on_first_node(runner: Any) -> Any:
    """The controller's class, whose process Ray starts beside Ray's head, where the run's command is."""
    return ray.remote(resources={_HEAD_RESOURCE: 0.001})(runner.__ray_metadata__.modified_class)


def track_as_one_run(run_dir: Path) -> None:
    """Make trackers, in this process, have every step of the run, and how it ended, whatever an earlier start left."""
    trainer_base.Tracking = as_one_run(trainer_base.Tracking, run_dir)


def keep_references(config: Any, called_by_run: dict[str, Any]) -> None:
    """Make VeRL show only ``config``, with its references, and write generations that only the user can read.

    ``called_by_run`` has the functions that VeRL's ``run`` calls, by name; it is changed.
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


def save_on_request(request: Path) -> None:
    """Make VeRL, which reads ``save_freq`` anew, write a checkpoint after every step while ``request`` exists."""
    step = trainer_base.PPOTrainer.step

    @functools.wraps(step)
    def step_and_look(self: Any, *arguments: Any, **options: Any) -> Any:
        batch = step(self, *arguments, **options)
        if request.exists():
            self.config.trainer.save_freq = 1
        return batch

    trainer_base.PPOTrainer.step = step_and_look


def report_phases(run_dir: Path) -> None:
    """Report the parts of the start, and the phases that VeRL's trainers measure: ``gen``, ``update_actor``, ..."""
    for name, module in list(sys.modules.items()):
        if name.startswith(f"{v1.__name__}.") and (measure := getattr(module, "marked_timer", None)):
            module.marked_timer = _reported(measure)  # type: ignore[attr-defined]
    for name, method, part in _PARTS:
        owner = getattr(trainer_base, name)
        setattr(owner, method, _beginning(getattr(owner, method), part))
    report(run_dir, "trainer")


def _beginning(call: Any, part: str) -> Any:
    @functools.wraps(call)
    def begin_and_call(*arguments: Any, **options: Any) -> Any:
        begin_part(part)
        return call(*arguments, **options)

    # What was looked up at a class is bound to it already.
    return staticmethod(begin_and_call) if inspect.ismethod(call) else begin_and_call


def _reported(measure: Any) -> Any:
    @contextmanager
    def measure_and_report(name: str, *arguments: Any, **options: Any) -> Iterator[Any]:
        with waiting("phase", name), measure(name, *arguments, **options) as timer:
            yield timer

    return measure_and_report
