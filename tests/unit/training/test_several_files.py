"""Several dataset files and epochs: what a run is planned with, before anything starts."""

import json
from pathlib import Path
from typing import Any

import pytest

from aworld_train import recipe as recipes
from aworld_train.adapter.verl.framework import VerlFramework
from aworld_train.dataset import build, check_file, check_files
from aworld_train.training.framework_processor import FrameworkProcessor
from aworld_train.training.run_folder import open_run_folder


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    paths = []
    for seed, rows in ((1, 40), (2, 24)):
        out = tmp_path / f"data-{seed}"
        build("arithmetic", out, splits={"train": 1.0}, seed=seed, limit=rows)
        paths.append(str(out / "train.parquet"))
    return paths


def test_several_files_are_summed_up_as_one(files: list[str]) -> None:
    first, second = (check_file(file) for file in files)
    both = check_files(files)
    assert both.rows == first.rows + second.rows
    assert both.path == first.path
    assert sum(both.data_sources.values()) == both.rows


def test_epochs_become_as_many_steps_as_the_tasks_of_all_files_give(
    files: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aworld_train.training.framework_processor.check_model", lambda path: None)
    processor = FrameworkProcessor(str(tmp_path / "runs"))
    config: dict[str, Any] = {
        "name": "epochs",
        "model": {"path": "org/model"},
        "dataset": {"train": files, "val": files[:1]},
        "trainer": {"epochs": 3, "batch_size": 16},
        "env": {"docker_dir": "calculator-mcp-server"},
    }
    planned = processor.check_config(recipes.read(config))
    assert planned.trainer.steps == 3 * (check_files(files).rows // 16)
    assert processor.loaded is not None and processor.loaded.recipe == planned


def test_the_manifest_has_the_variables_of_the_recipe(tmp_path: Path) -> None:
    variables = {"NCCL_DEBUG": "INFO"}
    folder = open_run_folder(
        tmp_path / "run", VerlFramework(), {"name": "r"}, [], environment=variables, resume=False
    )
    folder.close()
    assert json.loads((folder.path / "manifest.json").read_text())["environment"] == variables
