"""What trackers have of a run is what its ``metrics.jsonl`` has, after a kill too."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.aworld_environment import mlflow_python, run_with
from tests.e2e.conftest import SMALL, Workspace, assert_all_gone, descendants, find, wait_for
from tests.tracker_records import TrackedRun, read_tensorboard, read_wandb

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

KEY = "5ec2e7" * 6 + "5ec2"
"""Looks like a key of W&B's, and is none."""
VARIABLES = (
    "WANDB_API_KEY",
    "WANDB_MODE",
    "WANDB_DIR",
    "WANDB_DATA_DIR",
    "WANDB_RUN_ID",
    "NETRC",
    "MLFLOW_TRACKING_URI",
    "MLFLOW_RUN_ID",
    "TENSORBOARD_DIR",
)
RECIPE = [
    "recipes/quickstart.yaml",
    "name=tracked",
    *SMALL,
    "trainer.val_every=2",
    "trainer.log_val_generations=2",
    "trainer.loggers=[wandb,mlflow,tensorboard]",
]


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home without any login; and no variable that says where trackers record."""
    mlflow_python()  # made in the home that there is
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_three_trackers_have_each_step_of_a_run_that_was_killed_and_resumed(
    workspace: Workspace, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = mlflow_python()
    process = workspace.start("train", *RECIPE, python=python)
    run = workspace.runs / "tracked"
    wait_for("step", lambda: len(_rows(run)) > 2, 600, process)
    everything = descendants(process.pid)
    driver = find(everything, "aworld_train.adapter.verl.main")
    assert driver is not None
    driver.kill()
    _, err = process.communicate(timeout=120)
    assert "W&B has no login" in err
    assert f"wandb sync {run}/trackers/wandb/latest-run" in err
    assert_all_gone(everything)

    monkeypatch.setenv("WANDB_API_KEY", KEY)
    monkeypatch.setenv("WANDB_MODE", "offline")
    done = workspace.run("train", *RECIPE, "--resume", python=python)
    assert done.returncode == 0, done.stderr
    assert "W&B has no login" not in done.stderr

    rows = {row["step"]: row["verl"] for row in workspace.metrics("tracked")}
    assert list(rows) == [0, 1, 2, 3, 4]
    trackers = run / "trackers"
    for tracked in (
        read_wandb(trackers / "wandb"),
        _read_mlflow(python, trackers, elsewhere),
        read_tensorboard(trackers / "tensorboard"),
    ):
        assert tracked.steps.keys() == rows.keys(), tracked.name
        for step, figures in rows.items():
            missing = {key: value for key, value in figures.items() if not tracked.has(step, key, value)}
            assert not missing, (tracked.name, step)
        assert tracked.generations, tracked.name
        assert tracked.ids == 1, tracked.name
        assert tracked.status in ("finished", None), tracked.name
    # Nothing of theirs is elsewhere, and no file has the key.
    assert not [name for name in ("mlruns", "mlflow.db", "wandb", "tensorboard_log") if (run / name).exists()]
    assert not (elsewhere / ".local").exists()
    assert list(_files_with(run, KEY.encode())) == []
    assert trackers.stat().st_mode & 0o777 == 0o700


def _rows(run: Path) -> list[str]:
    file = run / "metrics.jsonl"
    return file.read_text().splitlines() if file.exists() else []


def _read_mlflow(python: Path, trackers: Path, home: Path) -> TrackedRun:
    done = run_with(
        python, "-m", "tests.tracker_records", f"sqlite:///{trackers}/mlflow/mlflow.db", HOME=str(home)
    )
    return TrackedRun.from_json(json.loads(done.stdout.splitlines()[-1]))


def _files_with(folder: Path, content: bytes) -> Iterator[Path]:
    return (file for file in folder.rglob("*") if file.is_file() and content in file.read_bytes())


def test_a_server_that_does_not_answer_ends_the_run_before_a_model_is_loaded(
    workspace: Workspace, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://user:hidden@127.0.0.1:9")
    recipe = ["recipes/quickstart.yaml", "name=silent", *SMALL, "trainer.loggers=[mlflow]"]
    done = workspace.run("train", *recipe, python=mlflow_python(), seconds=300)
    assert done.returncode == 1
    (error,) = [line for line in done.stderr.splitlines() if "MLflow" in line]
    assert "cannot be used at http://" in error
    assert "127.0.0.1:9 (MLFLOW_TRACKING_URI)" in error
    assert "hidden" not in done.stderr
    run = workspace.runs / "silent"
    assert list(_files_with(run, b"hidden")) == []
    assert "Loading" not in (run / "logs/verl.log").read_text()
