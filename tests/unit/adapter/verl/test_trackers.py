"""Trackers record below the run folder and need no network, and a resumed run is the same run in each of them."""

import importlib.util
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from aworld_train import recipe as recipes
from aworld_train.adapter.base import framework_of
from aworld_train.adapter.verl.compose import compose
from aworld_train.adapter.verl.tracked_run import (
    prepare_trackers,
    repeat_earlier_steps,
    take_back_later_steps,
)
from aworld_train.adapter.verl.trackers import tracker_environment, tracker_faults
from aworld_train.errors import RecipeError
from aworld_train.recipe.schema import Recipe
from aworld_train.recipe.trackers import tracker_remarks
from tests.environments import eventually
from tests.tracker_records import read_tensorboard, read_wandb

pytestmark = pytest.mark.skipif(find_spec("verl") is None, reason="needs the extra cpu or gpu")

GPU = {"model": {"path": "org/model"}, "rollout": {"engine": "vllm"}}
VARIABLES = (
    "WANDB_API_KEY",
    "WANDB_MODE",
    "WANDB_DIR",
    "WANDB_DATA_DIR",
    "WANDB_RUN_ID",
    "WANDB_IDENTITY_TOKEN_FILE",
    "NETRC",
    "MLFLOW_TRACKING_URI",
    "TENSORBOARD_DIR",
)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home without a login, and no variable of a tracker."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def recipe(*loggers: str, **sections: Any) -> Recipe:
    return recipes.load({**GPU, **sections, "trainer": {"loggers": list(loggers)}})


def lacking(monkeypatch: pytest.MonkeyPatch, *modules: str) -> None:
    monkeypatch.setattr(
        "aworld_train.recipe.trackers.find_spec",
        lambda name: None if name in modules else importlib.util.find_spec("json"),
    )


@pytest.mark.parametrize("tracker", ["wandb", "mlflow", "tensorboard", "swanlab", "clearml", "trackio"])
def test_a_tracker_whose_package_is_missing_is_refused_with_the_command_that_installs_it(
    tracker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lacking(monkeypatch, tracker)
    [(key, _)] = tracker_faults(recipe("tensorboard" if tracker == "wandb" else "wandb", tracker))
    assert key == ("trainer", "loggers", "1")
    with pytest.raises(RecipeError, match=f"names {tracker}, .* not installed: pip install {tracker}"):
        framework_of(recipe(tracker))
    with pytest.raises(RuntimeError, match=f"pip install {tracker}"):
        prepare_trackers([tracker], Path("run"), project="p", run="r")
    # On a cluster with an image of its own, the job itself looks.
    framework_of(recipe(tracker, cluster={"launcher": "kubernetes"}))


def test_mlflow_without_a_database_is_refused_unless_it_records_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lacking(monkeypatch, "sqlalchemy")
    with pytest.raises(RecipeError, match="pip install mlflow"):
        framework_of(recipe("mlflow"))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    framework_of(recipe("mlflow"))


def test_trackers_record_below_the_run_folder(tmp_path: Path) -> None:
    variables = tracker_environment(recipe("wandb", "mlflow", "tensorboard"), tmp_path / "run")
    folder = tmp_path / "run/trackers"
    assert variables["WANDB_DIR"] == str(folder)
    assert variables["WANDB_DATA_DIR"] == f"{folder}/wandb-data"
    assert variables["WANDB_MODE"] == "offline"
    assert variables["WANDB_RESUME"] == "allow"
    assert len(variables["WANDB_RUN_ID"]) == 8
    assert variables["MLFLOW_TRACKING_URI"] == f"sqlite:///{folder}/mlflow/mlflow.db"
    assert variables["TENSORBOARD_DIR"] == f"{folder}/tensorboard"
    assert folder.stat().st_mode & 0o777 == 0o700
    again = tracker_environment(recipe("wandb", "mlflow", "tensorboard"), tmp_path / "run")
    assert again == variables
    assert tracker_environment(recipe("wandb"), tmp_path / "b")["WANDB_RUN_ID"] != variables["WANDB_RUN_ID"]


def test_a_run_without_trackers_has_none_of_it(tmp_path: Path) -> None:
    assert tracker_environment(recipe(), tmp_path / "run") == {}
    assert not (tmp_path / "run").exists()
    assert tracker_remarks(recipe(), tmp_path) == []


def test_what_the_user_has_set_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stated = {"MLFLOW_TRACKING_URI": "http://mlflow:5000", "TENSORBOARD_DIR": "/tb", "WANDB_DIR": "/wandb"}
    for name, value in stated.items():
        monkeypatch.setenv(name, value)
    of_recipe = recipe("wandb", "mlflow", "tensorboard", cluster={"environment": {"WANDB_MODE": "disabled"}})
    variables = tracker_environment(of_recipe, tmp_path)
    assert not {*stated, "WANDB_MODE"} & set(variables)
    assert {"WANDB_RUN_ID", "MLFLOW_HTTP_REQUEST_MAX_RETRIES"} <= set(variables)


@pytest.mark.parametrize("login", ["WANDB_API_KEY", "WANDB_MODE", "netrc", None])
def test_without_a_login_wandb_records_offline_and_the_user_is_told(
    login: str | None, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if login == "netrc":
        (home / ".netrc").write_text("machine api.wandb.ai login user password 123")
    elif login:
        monkeypatch.setenv(login, "online")
    assert ("WANDB_MODE" in tracker_environment(recipe("wandb"), tmp_path)) == (login is None)
    remarks = tracker_remarks(recipe("wandb"), tmp_path)
    assert bool(remarks) == (login is None)
    if remarks:
        assert f"wandb sync {tmp_path}/trackers/wandb/latest-run" in remarks[0]


def test_trackers_stand_beside_what_is_always_written(tmp_path: Path) -> None:
    assert compose(recipe("wandb"), tmp_path)["trainer"]["logger"] == ["console", "file", "wandb"]


def test_tensorboard_drops_the_steps_that_come_again(tmp_path: Path) -> None:
    from torch.utils.tensorboard import SummaryWriter

    def write(steps: range, value: float) -> None:
        writer = SummaryWriter(str(tmp_path))
        for step in steps:
            writer.add_scalar("reward", value, step)
        writer.close()

    take_back_later_steps(tmp_path, 0)
    assert list(tmp_path.iterdir()) == [tmp_path / "home"]
    write(range(5), 1.0)
    take_back_later_steps(tmp_path, 3)
    write(range(3, 6), 2.0)
    steps = read_tensorboard(tmp_path).steps
    assert {step: figures["reward"] for step, figures in sorted(steps.items())} == {
        0: 1.0, 1: 1.0, 2: 1.0, 3: 2.0, 4: 2.0, 5: 2.0,
    }  # fmt: skip


def test_a_folder_of_the_user_s_own_keeps_the_steps_of_other_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch.utils.tensorboard import SummaryWriter

    def files_after_a_start(folder: Path) -> int:
        monkeypatch.setenv("TENSORBOARD_DIR", str(folder))
        with SummaryWriter(str(folder)) as writer:
            writer.add_scalar("reward", 1.0, 1)
        prepare_trackers(["tensorboard"], tmp_path, project="p", run="r")
        return len(list(folder.iterdir()))

    assert files_after_a_start(tmp_path / "shared") == 1
    assert files_after_a_start(tmp_path / "trackers/tensorboard") == 2


def test_wandb_gets_the_steps_of_earlier_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import wandb

    (tmp_path / "metrics.jsonl").write_text(
        '{"step": 0, "verl": {"val": 0.25}}\n{"step": 1, "verl": {"loss": null, "reward": 0.5}}\n'
    )
    for name, value in tracker_environment(recipe("wandb"), tmp_path).items():
        monkeypatch.setenv(name, value)
    with wandb.init(project="p") as run:
        repeat_earlier_steps(tmp_path)
        run.log({"reward": 0.75}, step=2)
    # W&B's own process writes the end of the file after it has said that the run is over.
    assert eventually(lambda: read_wandb(tmp_path / "trackers/wandb").status == "finished")
    steps = read_wandb(tmp_path / "trackers/wandb").steps
    assert steps[0]["val"] == 0.25
    assert (steps[1]["reward"], steps[2]["reward"]) == (0.5, 0.75)
    assert "loss" not in steps[1]
