"""``doctor RECIPE`` says where the memory of GPUs goes, on a machine without one too, and where it is too little."""

import json
from pathlib import Path
from typing import Any

import pytest

from aworld_train.doctor.disk import check_disk
from aworld_train.doctor.gpu import check_gpu_memory
from aworld_train.doctor.resources import check_memory
from aworld_train.recipe.tree import merge
from tests.hub import REPOSITORY, hub
from tests.unit.doctor.test_planted_faults import df
from tests.unit.doctor.world import QWEN3_8B, World, new_world

GB = 10**9
EIGHT: dict[str, Any] = {
    "rollout": {"engine": "vllm", "tensor_parallel": 2, "gpu_memory": 0.6},
    "trainer": {"dynamic_batches": True, "batch_size": 8, "max_batch_tokens": 8192},
    "model": {"attention": "flash_attention_2"},
    "cluster": {"device": "cuda", "gpus_per_node": 8},
}
WRITTEN = "of a checkpoint alone"
ONE = merge(EIGHT, {"cluster": {"gpus_per_node": 1}, "rollout": {"tensor_parallel": 1}})


def world_of(folder: Path, **changes: Any) -> World:
    world = new_world(folder)
    world.model(2_000_000, **QWEN3_8B, **changes)
    return world


def findings(world: World, values: dict[str, Any], gpu: int = 0) -> list[tuple[str, str]]:
    values = merge(values, {"model": {"path": str(world.folder / "model")}})
    found = [
        (finding.status.value, finding.what)
        for finding in check_gpu_memory(world.machine(), world.needs(values), gpu)
    ]
    return [(level, text) for level, text in found if WRITTEN not in text]


def test_each_phase_is_named_with_its_size_and_the_fullest_with_its_parts(tmp_path: Path) -> None:
    ((level, text),) = findings(world_of(tmp_path), EIGHT)
    assert level == "ok"
    assert "8 GPUs, 8.2 billion parameters" in text
    for phase in (
        "load",
        "sample",
        "log-probability",
        "backward",
        "optimizer step",
        "transfer",
        "checkpoint",
    ):
        assert f"{phase} " in text
    assert "and the engine, " in text, "how large a GPU is nobody knows"
    assert "Backward: " in text and "weights 4.1 GB" in text and "moments 8.2 GB" in text
    assert "the engine has 60% of the GPU" in text


def test_what_is_more_than_a_gpu_has_is_a_warning_with_what_to_do(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    _, (level, text) = findings(world, ONE, 80 * GB)
    assert level == "warn" and "does not fit: 8.2 billion parameters take 1" in text and "(backward)" in text
    full = merge(EIGHT, {"rollout": {"gpu_memory": 0.9}})
    _, (level, text) = findings(world, full, 80 * GB)
    assert level == "warn" and "(sample)" in text
    assert len(findings(world, EIGHT, 80 * GB)) == 1


def test_the_part_that_should_stay_free_is_counted(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    ((_, text),) = findings(world, EIGHT)
    taken = float(text.split("backward ")[1].split(" GB")[0])
    low = merge(EIGHT, {"rollout": {"gpu_memory": 0.1}})
    assert len(findings(world, low, int(taken / 0.91 * GB))) == 1
    assert len(findings(world, low, int(taken / 0.93 * GB))) == 2


@pytest.mark.parametrize(
    "values", [{"cluster": {"device": "cpu", "gpus_per_node": 1}}, {"model": {"path": "org/other"}}]
)
def test_without_gpus_or_the_model_s_files_nothing_is_said(tmp_path: Path, values: dict[str, Any]) -> None:
    world = world_of(tmp_path)
    small = {"rollout": {"engine": "vllm"}, "cluster": {"device": "cuda"}}
    assert [*check_gpu_memory(world.machine(), world.needs(merge(small, values)), 0)] == []


@pytest.mark.parametrize(("values", "ranks"), [(EIGHT, 8), (ONE, 1)])
def test_how_fast_the_first_rank_has_to_write_is_said_where_others_wait_for_it(
    tmp_path: Path, values: dict[str, Any], ranks: int
) -> None:
    """8.2 billion parameters of 4 bytes in 1,800 seconds."""
    world = world_of(tmp_path)
    needs = world.needs(merge(values, {"model": {"path": str(tmp_path / "model")}}))
    texts = [
        finding.what for finding in check_gpu_memory(world.machine(), needs, 0) if WRITTEN in finding.what
    ]
    assert len(texts) == (1 if ranks > 1 else 0)
    for text in texts:
        assert f"first of {ranks} ranks writes 32.8 GB" in text and "30 minutes" in text and "19 MB/s" in text


def test_a_model_of_the_hub_is_planned_by_its_configuration_alone(tmp_path: Path) -> None:
    read: list[str] = []
    values = merge(EIGHT, {"model": {"path": REPOSITORY}})
    with hub({"config.json": json.dumps(QWEN3_8B).encode()}, read) as url:
        world = new_world(tmp_path)
        world.variables["HF_ENDPOINT"] = url
        texts = [finding.what for finding in check_gpu_memory(world.machine(), world.needs(values), 0)]
        assert "8 GPUs, 8.2 billion parameters" in texts[0] and set(read) == {"config.json"}
        world.program("df", df(free=500 * GB))
        (full, *_) = check_disk(world.machine(), world.needs(merge(values, {"trainer": {"steps": 100}})))
        assert full.status.value == "fail" and "needs about 525." in full.what
        world.variables["HF_HUB_OFFLINE"] = "1"
        assert [*check_gpu_memory(world.machine(), world.needs(values), 0)] == []


def test_a_model_of_experts_has_no_plan(tmp_path: Path) -> None:
    assert findings(world_of(tmp_path, num_experts=128), EIGHT) == []


def test_what_waits_in_the_machine_is_asked_of_the_machine(tmp_path: Path) -> None:
    """8.2 billion parameters: 98 GB of weights and moments and a copy of 33; the machine has 34."""
    world = world_of(tmp_path)
    values = merge(EIGHT, {"model": {"path": str(tmp_path / "model")}, "trainer": {"offload": "all"}})
    (finding,) = check_memory(world.machine(), world.needs(values))
    assert finding.status.value == "fail" and "a run needs about 135.5 GB" in finding.what
    assert "trainer.offload=none" in finding.remedy
