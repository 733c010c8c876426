"""``model.path: runs/NAME`` is the last whole checkpoint of a run; a run that began from one keeps to its step."""

import json
from pathlib import Path

import pytest

from aworld_train import recipe as recipes
from aworld_train.errors import AworldTrainError
from aworld_train.recipe.schema import Recipe
from aworld_train.training.run_models import MODEL_FROM, run_model, with_run_model


def make_checkpoint(run: Path, step: int, *, whole: bool = True) -> Path:
    model = run / f"checkpoints/global_step_{step}/actor/huggingface"
    model.mkdir(parents=True)
    (model / "config.json").write_text("{}")
    if whole:
        import torch

        torch.save({}, model.parents[1] / "data.pt")
    return model


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    run = tmp_path / "elsewhere" / "first"
    run.mkdir(parents=True)
    (run / "recipe.yaml").write_text("name: first\n")
    make_checkpoint(run, 2)
    make_checkpoint(run, 4)
    make_checkpoint(run, 6, whole=False)
    return run.parent


def recipe(path: str) -> Recipe:
    return recipes.load({"model": {"path": path}})


def test_a_run_is_named_below_the_folder_of_the_runs_or_by_its_own(runs: Path) -> None:
    for path in ("runs/first", str(runs / "first")):
        model = run_model(recipe(path), runs)
        assert model is not None
        assert (model.run, model.step) == ("first", 4)
        assert with_run_model(recipe(path), runs).model.location == str(model.folder)
        assert model.folder == (runs / "first/checkpoints/global_step_4/actor/huggingface").resolve()


def test_other_paths_are_no_runs(runs: Path, tmp_path: Path) -> None:
    for path in ("models/tiny", "Qwen/Qwen3-4B", str(tmp_path)):
        assert run_model(recipe(path), runs) is None
        assert with_run_model(recipe(path), runs).model.path == path
    assert run_model(Recipe(), runs) is None


def test_a_run_without_a_whole_checkpoint_and_an_unknown_one_are_refused(runs: Path) -> None:
    with pytest.raises(AworldTrainError, match=r"Unknown run 'firts'.*Did you mean 'first'"):
        run_model(recipe("runs/firts"), runs)
    other = runs / "other"
    other.mkdir()
    (other / "recipe.yaml").write_text("name: other\n")
    with pytest.raises(AworldTrainError, match="has no checkpoint yet"):
        run_model(recipe("runs/other"), runs)
    make_checkpoint(other, 1, whole=False)
    with pytest.raises(AworldTrainError, match=r"no whole checkpoint: of step 1, data.pt is missing"):
        run_model(recipe("runs/other"), runs)


def test_a_run_that_trained_is_resumed_from_the_step_in_its_manifest(runs: Path) -> None:
    second = runs / "second"
    second.mkdir()
    manifest = {"data_sha256": {}, MODEL_FROM: {"run": "first", "step": 2}}
    (second / "manifest.json").write_text(json.dumps(manifest))

    def step() -> int:
        model = run_model(recipe("runs/first"), runs, second)
        assert model is not None
        return model.step

    assert step() == 4  # it has not trained, so it begins anew
    (second / "metrics.jsonl").write_text('{"step": 1, "loss": 1.0}\n')
    assert step() == 2
