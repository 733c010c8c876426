"""``doctor RECIPE`` says where a run's memory goes on each GPU, on a machine without one too."""

from pathlib import Path
from typing import Any

import pytest

from aworld_train.doctor.estimate import TRAINED_BYTES
from aworld_train.doctor.memory_plan import _GRADIENT, _MOMENTS, _WEIGHT, memory_plan
from aworld_train.recipe.tree import merge
from tests.unit.doctor.world import new_world

EIGHT: dict[str, Any] = {
    "rollout": {"engine": "vllm", "tensor_parallel": 2, "gpu_memory": 0.6},
    "trainer": {"dynamic_batches": True, "batch_size": 8},
    "cluster": {"device": "cuda", "gpus_per_node": 8},
}
PARAMETERS = 8 * 10**9


def plan(folder: Path, values: dict[str, Any]) -> str:
    world = new_world(folder)
    world.model(2 * PARAMETERS)
    return " ".join(finding.what for finding in memory_plan(world.machine(), world.needs(values)))


def test_each_part_of_the_memory_is_named_with_its_size(tmp_path: Path) -> None:
    text = plan(tmp_path, merge(EIGHT, {"trainer": {"offload": "optimizer"}}))
    assert "8.0 billion parameters" in text
    assert "its weights (8.0 GB)" in text and "60% of the GPU" in text and "4.0 GB of the trainer" in text
    assert "16.0 GB (weights 4.0 GB, gradients 4.0 GB, optimizer 8.0 GB)" in text
    assert "moves 64.0 GB to the memory of each machine" in text


def test_adapters_leave_the_weights_frozen_and_offload_moves_them(tmp_path: Path) -> None:
    model = {"path": str(tmp_path / "model"), "lora": {"rank": 16}}
    text = plan(tmp_path, merge(EIGHT, {"model": model, "trainer": {"offload": "all"}}))
    assert "2.0 GB (frozen weights; adapters are small)" in text and "moves 16.0 GB" in text


@pytest.mark.parametrize("values", [{"cluster": {"device": "cpu"}}, {"model": {"path": "org/other"}}])
def test_without_gpus_or_the_model_s_files_nothing_is_said(tmp_path: Path, values: dict[str, Any]) -> None:
    small = {"rollout": {"engine": "vllm"}, "cluster": {"device": "cuda"}}
    assert plan(tmp_path, merge(small, values)) == ""


def test_the_parts_are_what_a_trained_parameter_takes() -> None:
    assert _WEIGHT + _GRADIENT + _MOMENTS == TRAINED_BYTES
