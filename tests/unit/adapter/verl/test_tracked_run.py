"""A resumed run is the same run in MLflow, and a failed one is not said to have finished."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from aworld_train.adapter.verl import checkpoints, tracked_run
from aworld_train.adapter.verl.tracked_run import finish_mlflow, prepare_trackers
from aworld_train.adapter.verl.trackers import local_store

REMOTE = "http://user:hush@mlflow.example:5000"


class Mlflow(ModuleType):
    """Stands in for the package, which needs a database and seconds."""

    def __init__(self) -> None:
        super().__init__("mlflow")
        self.calls: list[tuple[Any, ...]] = []
        self.params: dict[str, str] = {}
        self.experiment: SimpleNamespace | None = None
        self.failure: Exception | None = None
        self.is_active, self.runs = True, 0

    def MlflowClient(self) -> "Mlflow":
        return self

    def set_tracking_uri(self, uri: str) -> None:
        self.calls.append(("uri", uri))

    def get_experiment_by_name(self, name: str) -> SimpleNamespace | None:
        return self.experiment

    def create_experiment(self, name: str, artifact_location: str | None) -> str:
        self.calls.append(("experiment", name, artifact_location))
        return "e1"

    def create_run(self, experiment: str, run_name: str) -> SimpleNamespace:
        self.calls.append(("run", experiment, run_name))
        self.runs += 1
        return SimpleNamespace(info=SimpleNamespace(run_id=f"run{self.runs}"))

    def get_run(self, run: str) -> SimpleNamespace:
        if self.failure:
            raise self.failure
        return SimpleNamespace(data=SimpleNamespace(params=self.params))

    def log_params(self, params: dict[str, Any], *arguments: Any, **options: Any) -> str:
        self.calls.append(("params", params, arguments, options))
        return "logged"

    def active_run(self) -> object | None:
        return object() if self.is_active else None

    def end_run(self, status: str) -> None:
        self.calls.append(("end", status))


@pytest.fixture
def mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mlflow]:
    package, errors = Mlflow(), ModuleType("mlflow.exceptions")
    errors.MlflowException = type("MlflowException", (Exception,), {})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "mlflow", package)
    monkeypatch.setitem(sys.modules, "mlflow.exceptions", errors)
    monkeypatch.setattr(tracked_run, "missing_package", lambda name: None)
    (tmp_path / "trackers").mkdir()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", local_store(tmp_path / "trackers"))
    monkeypatch.setenv("MLFLOW_RUN_ID", "")
    yield package


def start(run: Path) -> str:
    """The run that VeRL takes up."""
    os.environ["MLFLOW_RUN_ID"] = ""
    prepare_trackers(["mlflow"], run, project="p", run="r")
    return os.environ["MLFLOW_RUN_ID"]


def test_a_resumed_run_is_the_same_run_and_another_where_the_records_are_elsewhere(
    mlflow: Mlflow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "trackers"
    first = start(tmp_path)
    assert mlflow.calls == [
        ("uri", local_store(folder)),
        ("experiment", "p", (folder / "mlflow" / "artifacts").as_uri()),
        ("run", "e1", "r"),
    ]
    assert (folder / "mlflow").stat().st_mode & 0o777 == 0o700
    assert start(tmp_path) == first
    monkeypatch.setenv("MLFLOW_TRACKING_URI", REMOTE)
    mlflow.calls.clear()
    second = start(tmp_path)
    assert second != first
    assert mlflow.calls == [("uri", REMOTE), ("experiment", "p", None), ("run", "e1", "r")]
    assert start(tmp_path) == second
    assert "hush" not in (folder / "mlflow-run-id").read_text()


def test_a_run_is_filed_under_the_experiment_that_is_there(mlflow: Mlflow, tmp_path: Path) -> None:
    mlflow.experiment = SimpleNamespace(experiment_id="e7")
    start(tmp_path)
    assert mlflow.calls[1:] == [("run", "e7", "r")]


def test_a_run_that_the_user_names_is_taken_up(
    mlflow: Mlflow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_RUN_ID", "mine")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", REMOTE)
    prepare_trackers(["mlflow"], tmp_path, project="p", run="r")
    assert (os.environ["MLFLOW_RUN_ID"], mlflow.calls) == ("mine", [("uri", REMOTE)])
    assert list((tmp_path / "trackers").iterdir()) == []


def test_parameters_that_mlflow_has_are_not_sent_again(mlflow: Mlflow, tmp_path: Path) -> None:
    mlflow.params = {"steps": "3"}
    start(tmp_path)
    mlflow.calls.clear()
    assert mlflow.log_params({"steps": 5, "lr": 0.1}, 1, synchronous=True) == "logged"
    assert mlflow.calls == [("params", {"lr": 0.1}, (1,), {"synchronous": True})]


def test_a_server_that_fails_is_named_without_its_password(
    mlflow: Mlflow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", REMOTE)
    error: type[Exception] = sys.modules["mlflow.exceptions"].MlflowException
    mlflow.failure = error(f"no\n answer from {REMOTE}")
    with pytest.raises(RuntimeError) as caught:
        start(tmp_path)
    assert "hush" not in str(caught.value) and caught.value.__suppress_context__
    assert str(caught.value).startswith("MLflow cannot be used at http://")
    assert "(MLFLOW_TRACKING_URI): no answer from" in str(caught.value)


@pytest.mark.parametrize(("step", "first"), [(None, 0), (3, 4)])
def test_tensorboard_takes_back_the_steps_after_the_last_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int | None, first: int
) -> None:
    calls: list[tuple[Path, int]] = []
    checkpoint = None if step is None else SimpleNamespace(step=step)
    monkeypatch.setattr(tracked_run, "missing_package", lambda name: None)
    monkeypatch.setattr(tracked_run, "take_back_later_steps", lambda *arguments: calls.append(arguments))
    monkeypatch.setattr(checkpoints, "last_checkpoint", {tmp_path / "checkpoints": checkpoint}.get)
    monkeypatch.setenv("TENSORBOARD_DIR", str(tmp_path.resolve() / "trackers" / "tensorboard"))
    prepare_trackers(["tensorboard"], tmp_path, project="p", run="r")
    assert calls == [(tmp_path / "trackers" / "tensorboard", first)]


@pytest.mark.parametrize(("code", "status"), [(0, "FINISHED"), (1, "FAILED")])
def test_a_run_ends_as_it_did(mlflow: Mlflow, code: int, status: str) -> None:
    finish_mlflow(code)
    mlflow.is_active = False
    finish_mlflow(code)
    assert mlflow.calls == [("end", status)]
