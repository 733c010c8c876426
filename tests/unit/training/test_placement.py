"""A run on this machine is refused before anything starts if the machine lacks the recipe's GPUs."""

from pathlib import Path

import pytest

from aworld_train.adapter.base import Nodes
from aworld_train.errors import UsageError
from aworld_train.recipe import device
from aworld_train.recipe.schema import Device, Engine, Recipe
from aworld_train.training.placement import Placement, check_gpus


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recipe:
    monkeypatch.setattr(device, "_DEV", tmp_path)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for number in range(4):
        (tmp_path / f"nvidia{number}").touch()
    recipe = Recipe()
    recipe.rollout.engine, recipe.cluster.device = Engine.vllm, Device.cuda
    recipe.cluster.gpus_per_node = 8
    return recipe


def test_too_few_gpus_are_one_paragraph_that_says_what_to_do(recipe: Recipe) -> None:
    with pytest.raises(UsageError, match=r"takes 8 GPUs .* has 4 .*gpus_per_node.*--launcher") as caught:
        check_gpus(recipe)
    assert "\n" not in caught.value.message


def test_the_variable_that_hides_gpus_is_named(recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    with pytest.raises(UsageError, match="has 2 for it, by CUDA_VISIBLE_DEVICES='0,1'"):
        check_gpus(recipe)


def test_enough_gpus_or_none_needed_is_no_fault(recipe: Recipe) -> None:
    recipe.cluster.gpus_per_node = 4
    check_gpus(recipe)
    recipe.cluster.gpus_per_node, recipe.cluster.device = 64, Device.cpu
    check_gpus(recipe)


def test_only_a_run_without_other_machines_is_held_to_this_one(tmp_path: Path) -> None:
    nodes = Nodes({"n1": "127.0.0.2"}, ["srun"], "SLURMD_NODENAME", tmp_path, 20_000)
    assert Placement().is_this_machine
    assert not Placement(nodes=nodes).is_this_machine
    assert not Placement(address="10.0.0.1").is_this_machine
