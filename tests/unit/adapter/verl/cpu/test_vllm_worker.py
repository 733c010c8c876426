"""Which weights of the trainer vLLM's worker takes. VeRL's own classes need vLLM; others stand in for them."""

import importlib
import importlib.metadata
import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

PACKAGE = "verl.workers.rollout.vllm_rollout"
RELOAD = "vllm.model_executor.model_loader.reload"


class Receiver:
    """In place of VeRL's, which hands every bucket on in the same memory."""

    made: list[Any]

    def __init__(self, **options: Any):
        self.made.append(options)

    def receive_weights(self, on_bucket_received: Callable[[Any, bool], None]) -> None:
        memory = torch.zeros(2)
        for number in (1, 2):
            memory.fill_(number)
            on_bucket_received([(f"weight {number}", memory)], number == 2)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What vLLM was asked for."""
    made: list[Any] = []
    monkeypatch.setattr(Receiver, "made", made, raising=False)
    reload = {
        "initialize_layerwise_reload": lambda model: made.append("unpacked"),
        "finalize_layerwise_reload": lambda model, config: made.append(config),
    }
    modules = {
        PACKAGE: {},
        f"{PACKAGE}.bucketed_weight_transfer": {"BucketedWeightReceiver": Receiver},
        f"{PACKAGE}.utils": {"VLLM_LORA_INT_ID": 123, "vLLMColocateWorkerExtension": object},
        RELOAD: reload,
    }
    for name, members in modules.items():
        module = ModuleType(name)
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, name, module)
    return made


@pytest.fixture
def worker(calls: list[Any], monkeypatch: pytest.MonkeyPatch) -> Any:
    name = "aworld_train.adapter.verl.cpu.vllm_worker"
    monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(
        importlib.metadata, "version", importlib.metadata.version
    )  # which the import replaces
    yield importlib.import_module(name)
    sys.modules.pop(name)


def extension(worker: Any, parameters: list[str], loaded: list[Any]) -> Any:
    """vLLM's worker with a model of these parameters, which keeps what it loads."""

    def load_weights(weights: list[tuple[str, torch.Tensor]]) -> set[str] | None:
        loaded.extend((name, tensor.tolist()) for name, tensor in weights)
        return {name for name, _ in weights} if loaded[-1][0] in parameters else None

    named = [(name, None) for name in parameters]
    model = SimpleNamespace(named_parameters=lambda: named, load_weights=load_weights)
    made = worker.CpuWorkerExtension()
    made._get_zmq_handle = lambda: "ipc:///socket"
    made.model_runner = SimpleNamespace(
        model=model, lora_manager="manager", vllm_config=SimpleNamespace(model_config="packed")
    )
    return made


OPTIONS = {"zmq_handle": "ipc:///socket", "device": torch.device("cpu"), "use_shm": True}
BOTH = [("weight 1", [1.0, 1.0]), ("weight 2", [2.0, 2.0])]


@pytest.mark.parametrize(("peft_config", "base_sync_done"), [(None, True), ({"r": 1}, False)])
def test_a_model_is_unpacked_loaded_from_copies_and_packed_again(
    peft_config: Any, base_sync_done: bool, worker: Any, calls: list[Any]
) -> None:
    loaded: list[Any] = []
    made = extension(worker, ["weight 2"], loaded)
    made.update_weights_from_ipc(peft_config, base_sync_done)
    assert loaded == BOTH
    assert calls == ["unpacked", OPTIONS, "packed"]


def test_weights_that_were_not_sent_are_an_error_with_the_first_of_them(
    worker: Any, calls: list[Any]
) -> None:
    names = [f"layer {number}" for number in range(6)]
    with pytest.raises(RuntimeError, match=r"for 6 parameters of vLLM's model: layer 0, .*, layer 4\. They"):
        extension(worker, [*names, "weight 1"], []).update_weights_from_ipc()


def test_an_adapter_of_a_model_that_was_sent_is_served_alone(
    worker: Any, calls: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def serve(manager: Any, number: int, tensors: dict[str, torch.Tensor], config: Any) -> None:
        sent = [(name, tensor.tolist()) for name, tensor in tensors.items()]
        calls.append((manager, number, sent, config))

    monkeypatch.setattr(worker, "serve_adapter", serve)
    extension(worker, [], []).update_weights_from_ipc({"r": 1}, base_sync_done=True)
    assert calls == [OPTIONS, ("manager", 123, BOTH, {"r": 1})]


def test_after_an_error_the_rest_is_received_and_not_loaded(worker: Any, calls: list[Any]) -> None:
    loads: list[str] = []

    def load(weights: list[tuple[str, torch.Tensor]]) -> None:
        loads.append(weights[0][0])
        raise ValueError(f"{weights[0][0]} is wrong")

    with pytest.raises(ValueError, match="weight 1 is wrong"):
        worker.receive("ipc:///socket", load, use_shm=False)
    assert loads == ["weight 1"]
    assert calls == [OPTIONS | {"use_shm": False}]
