"""VeRL's controller as a run changes it: what it prints, tracks, saves and reports."""

import importlib
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from omegaconf import OmegaConf
from verl.trainer.ppo import v1
from verl.trainer.ppo.v1 import get_trainer_cls, trainer_base, trainer_sync

import aworld_train.adapter.verl.async_trainers  # noqa: F401 - VeRL takes its classes while PPOTrainer is its own
from aworld_train import waits
from aworld_train.adapter.base import SAVE_REQUEST
from aworld_train.adapter.verl import task_runner, trainer
from aworld_train.adapter.verl.compose import TRAINERS
from aworld_train.adapter.verl.task_runner import (
    TaskRunner,
    keep_references,
    on_first_node,
    track_as_one_run,
)
from aworld_train.recipe.schema import Mode

REFERENCE = "${oc.env:CANARY_PROJECT}"
VALUE = "canary-project"
CONFIG = {
    "trainer": {
        "project_name": REFERENCE,
        "experiment_name": "r",
        "logger": ["console"],
        "save_freq": -1,
        "v1": {"trainer_mode": "sync"},
    },
    "transfer_queue": {},
}


class Trainer:
    """In place of VeRL's trainer, which needs Ray and a model: one step, and what it finds while it runs."""

    def __init__(self, config: Any):
        self.config = config
        self.phases: list[Any] = []

    def init(self) -> None:
        self._setup()
        trainer_base.LLMServerManager.create()
        self._load_checkpoint()

    def _setup(self) -> None:
        self._look()

    def _load_checkpoint(self) -> None:
        self._look()

    def _look(self) -> None:
        self.phases += [(kind, name) for kind, name, _ in waits._open.values()]

    def step(self, metrics: dict[str, float]) -> str:
        """The batch."""
        with trainer_sync.marked_timer("update_actor", metrics):
            self._look()
        return "batch"

    _write_generations = staticmethod(trainer_base.PPOTrainer._write_generations)

    def fit(self, agent_loops: Any) -> None:
        options = self.config.trainer
        self.logger = trainer_base.Tracking(
            project_name=options.project_name,
            experiment_name=options.experiment_name,
            default_backend=list(options.logger),
            config=OmegaConf.to_container(self.config, resolve=True),
        )
        self.metrics: dict[str, float] = {}
        self.batch = self.step(self.metrics)


@pytest.fixture(autouse=True)
def _verl(monkeypatch: pytest.MonkeyPatch) -> None:
    """A VeRL whose changes by a run end with the test."""
    monkeypatch.setenv("CANARY_PROJECT", VALUE)
    monkeypatch.setattr(trainer_base, "Tracking", trainer_base.Tracking)
    for name in ("step", "_write_generations", "_setup", "_load_checkpoint", "fit"):
        monkeypatch.setattr(Trainer, name, vars(Trainer)[name])
    monkeypatch.setattr(trainer_base, "PPOTrainer", Trainer)
    monkeypatch.setattr(trainer_base.LLMServerManager, "create", classmethod(lambda cls: None))
    teachers = trainer_base.MultiTeacherModelManager
    monkeypatch.setattr(teachers, "__init__", teachers.__init__)
    for name, module in sys.modules.items():
        if name.startswith(f"{v1.__name__}.") and hasattr(module, "marked_timer"):
            monkeypatch.setattr(module, "marked_timer", module.marked_timer)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, run_dir: Path) -> Callable[[], tuple[Trainer, dict[str, Any]]]:
    """Runs VeRL's controller; returns its trainer, and what it has prepared by the names of what does that."""
    runner = TaskRunner.__ray_metadata__.modified_class
    prepared: dict[str, Any] = {}

    def track(folder: Path) -> None:
        prepared["track_as_one_run"] = folder
        track_as_one_run(folder)

    called_by_run = runner.__mro__[1].run.__wrapped__.__globals__
    monkeypatch.setitem(called_by_run, "pprint", called_by_run["pprint"])
    monkeypatch.setitem(called_by_run, "configure_verl_logging", lambda: None)
    monkeypatch.setattr("transfer_queue.init", lambda config: None)
    monkeypatch.setattr("transfer_queue.close", lambda: None)
    monkeypatch.setattr("verl.trainer.ppo.v1.get_trainer_cls", lambda mode: Trainer)
    monkeypatch.setattr(runner.__mro__[1], "init_agent_loop_manager", lambda self: self.trainer._look())
    monkeypatch.setattr(task_runner, "track_as_one_run", track)
    # Starts a thread that does not end.
    monkeypatch.setattr(task_runner, "report", lambda *arguments: prepared.update(report=arguments))
    monkeypatch.setattr(
        task_runner,
        "prepare_trackers",
        lambda *arguments, **options: prepared.update(prepare_trackers=(arguments, options)),
    )

    def run() -> tuple[Trainer, dict[str, Any]]:
        made = runner()
        made.run(OmegaConf.create(CONFIG))
        return made.trainer, prepared

    return run


def test_the_trainer_that_is_composed_is_known_to_verl_when_a_run_begins() -> None:
    module = importlib.import_module(task_runner._TRAINER_MODULE)
    assert {mode: get_trainer_cls(name) for mode, name in TRAINERS.items()} == {
        Mode.sync: trainer.EpisodeTrainer,
        Mode.colocate_async: module.ColocateTrainer,
        Mode.separate_async: module.SeparateTrainer,
    }


def test_a_run_prints_and_tracks_references_and_trains_with_their_values(
    run: Callable[[], tuple[Trainer, dict[str, Any]]],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tracked: dict[str, Any] = {}

    class Tracking(trainer_base.Tracking):  # type: ignore[misc]
        def __init__(self, **options: Any):
            super().__init__(**options)
            tracked.update(options)

    monkeypatch.setattr(trainer_base, "Tracking", Tracking)
    trainer, _ = run()
    printed = capsys.readouterr().out
    assert REFERENCE in printed and VALUE not in printed
    assert tracked["config"] == CONFIG
    assert tracked["project_name"] == trainer.config.trainer.project_name == VALUE


def test_a_run_reports_to_its_own_folder_and_prepares_its_trackers(
    run: Callable[[], tuple[Trainer, dict[str, Any]]], run_dir: Path
) -> None:
    trainer, prepared = run()
    assert prepared == {
        "track_as_one_run": run_dir,
        "report": (run_dir, "trainer"),
        "prepare_trackers": ((["console"], run_dir), {"project": VALUE, "run": "r"}),
    }
    parts = ("loading the model", "loading the checkpoint", "starting agent workers", "update_actor")
    assert trainer.phases == [("phase", part) for part in parts] and "update_actor" in trainer.metrics
    assert not waits._open


@pytest.mark.parametrize(("requested", "save_freq"), [(True, 1), (False, -1)])
def test_a_step_that_ends_after_a_request_is_saved(
    run: Callable[[], tuple[Trainer, dict[str, Any]]], run_dir: Path, requested: bool, save_freq: int
) -> None:
    if requested:
        (run_dir / SAVE_REQUEST).touch()
    trainer, _ = run()
    assert (trainer.config.trainer.save_freq, trainer.batch) == (save_freq, "batch")


def test_generations_are_their_owner_s(tmp_path: Path) -> None:
    keep_references({}, {})
    dump = tmp_path / "new" / "dump"
    trainer_base.PPOTrainer._write_generations(["a"], ["b"], ["c"], [1.0], {}, str(dump), 3)
    trainer_base.PPOTrainer._write_generations(["a"], ["d"], ["c"], [1.0], {}, str(dump), 3)
    (file,) = dump.iterdir()
    assert json.loads(file.read_text())["output"] == "d"
    assert file.stat().st_mode & 0o777 == 0o600


def tracking(run_dir: Path, *trackers: str) -> Any:
    """VeRL's tracking in a run of one step before this start."""
    (run_dir / "metrics.jsonl").write_text('{"step": 0, "verl": {"loss": 0.5}}\n')
    track_as_one_run(run_dir)
    return trainer_base.Tracking(project_name="p", experiment_name="r", default_backend=list(trackers))


def test_tensorboard_is_not_left_to_write_a_step_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[Any] = []
    written: list[Any] = []
    writer = SimpleNamespace(
        add_scalar=lambda *scalar: held.append(scalar), flush=lambda: written.extend(held), close=lambda: None
    )
    monkeypatch.setattr("torch.utils.tensorboard.SummaryWriter", lambda folder: writer)
    monkeypatch.setenv("TENSORBOARD_DIR", str(tmp_path))
    tracking(tmp_path, "tensorboard").log({"reward": 1.0}, 1)
    assert written == [("reward", 1.0, 1)]


@pytest.mark.parametrize(("exit_codes", "expected"), [([], ["FINISHED", 0]), ([1], ["FAILED", 1])])
def test_trackers_have_the_earlier_steps_of_a_run_and_how_it_ended(
    exit_codes: Sequence[int], expected: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[tuple[dict[str, float], int]] = []
    ends: list[Any] = []
    wandb = SimpleNamespace(
        init=lambda **options: None,
        run=SimpleNamespace(step=0),
        log=lambda data, step: steps.append((data, step)),
        finish=lambda exit_code: ends.append(exit_code),
    )
    mlflow = SimpleNamespace(
        set_tracking_uri=lambda uri: None,
        start_run=lambda run_id: None,
        log_params=lambda params: None,
        log_metrics=lambda metrics, step: None,
        active_run=lambda: None if ends else "r",
        end_run=lambda status="FINISHED": ends.append(status),
    )
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    monkeypatch.setenv("MLFLOW_RUN_ID", "r")
    tracker = tracking(tmp_path, "wandb", "mlflow")
    tracker.log({"loss": 0.25}, 1)
    tracker.finish(*exit_codes)
    assert steps == [({"loss": 0.5}, 0), ({"loss": 0.25}, 1)]
    assert ends == expected


def test_the_controller_of_several_nodes_runs_on_the_first_of_them() -> None:
    runner = on_first_node(TaskRunner)
    assert runner._default_options["resources"] == {"node:__internal_head__": 0.001}
    assert runner.__ray_metadata__.modified_class.__name__ == "TaskRunner"
