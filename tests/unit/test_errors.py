"""Errors name the command line's options, and to a program what these are in Python."""

from pathlib import Path

import pytest

from aworld_train.dataset import build
from aworld_train.env import up
from aworld_train.errors import AworldTrainError, UsageError, options_as_arguments
from aworld_train.training import AgentTrainer


def notes_of(error: BaseException) -> list[str]:
    return getattr(error, "__notes__", [])


def test_only_options_that_are_arguments_are_noted_and_each_once() -> None:
    with pytest.raises(UsageError) as caught, options_as_arguments({"--map": "map=...", "--out": "out=..."}):
        raise UsageError("Give --map, or --map a=b, or --mapping, to ray --num-gpus.")
    assert notes_of(caught.value) == ["In Python, --map is map=...."]
    with pytest.raises(UsageError) as caught, options_as_arguments({"--map": "map=..."}):
        raise UsageError("Nothing to give.")
    assert notes_of(caught.value) == []


def test_a_dataset_s_options_are_noted(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("aaa,bbb\n1+1,2\n")
    with pytest.raises(AworldTrainError, match="--map") as caught:
        build("csv", tmp_path / "out", files=[tmp_path / "a.csv"])
    assert notes_of(caught.value) == ["In Python, --map is build(columns=...)."]


def test_an_environment_s_options_are_noted(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--env-file") as caught:
        up("calculator-mcp-server", env_file=tmp_path / "none.env")
    assert notes_of(caught.value) == ["In Python, --env-file is up(env_file=...)."]


def test_a_trainer_s_options_are_noted(tmp_path: Path) -> None:
    (tmp_path / "runs").touch()
    with pytest.raises(UsageError, match="--runs") as caught:
        AgentTrainer(run_path=str(tmp_path / "runs" / "below"))
    assert notes_of(caught.value) == ["In Python, --runs is AgentTrainer(run_path=...)."]
