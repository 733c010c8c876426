"""What trackers have of a run is what its ``metrics.jsonl`` has, after a kill too."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.aworld_environment import mlflow_python, run_with
from tests.e2e.conftest import SMALL, Workspace
from tests.e2e.interrupted_run import KEY, NAME, STEPS, TRACKER_VARIABLES, home, interrupted_run
from tests.tracker_records import TrackedRun, read_tensorboard, read_wandb

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home without any login; and no variable that says where trackers record."""
    mlflow_python()  # made in the home that there is
    for name in TRACKER_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_three_trackers_have_each_step_of_a_run_that_was_killed_and_resumed(workspace: Workspace) -> None:
    seen = interrupted_run(workspace)
    run = workspace.runs / NAME
    assert "W&B has no login" in seen["killed"]["err"]
    assert f"wandb sync {run}/trackers/wandb/latest-run" in seen["killed"]["err"]
    assert "W&B has no login" not in seen["end"]["err"]

    rows = {row["step"]: row["verl"] for row in workspace.metrics(NAME)}
    assert list(rows) == list(range(STEPS + 1))
    trackers = run / "trackers"
    for tracked in (
        read_wandb(trackers / "wandb"),
        _read_mlflow(mlflow_python(), trackers, home(workspace)),
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
    assert not (home(workspace) / ".local").exists()
    assert list(_files_with(run, KEY.encode())) == []
    assert trackers.stat().st_mode & 0o777 == 0o700


def _read_mlflow(python: Path, trackers: Path, home: Path) -> TrackedRun:
    done = run_with(
        python, "-m", "tests.tracker_records", f"sqlite:///{trackers}/mlflow/mlflow.db", HOME=str(home)
    )
    return TrackedRun.from_json(json.loads(done.stdout.splitlines()[-1]))


def _files_with(folder: Path, content: bytes) -> Iterator[Path]:
    return (file for file in folder.rglob("*") if file.is_file() and content in file.read_bytes())


@pytest.mark.slow
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
