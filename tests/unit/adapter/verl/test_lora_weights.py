"""What VeRL saves of a LoRA run becomes the model that PEFT computes with, and an adapter that PEFT loads."""

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from aworld_train.adapter.verl.lora_weights import is_split, merge
from aworld_train.errors import ModelError
from aworld_train.model.tiny import SHIPPED

IDS = torch.arange(24)[None]


def trained(**settings: Any) -> Any:
    network = get_peft_model(
        AutoModelForCausalLM.from_pretrained(SHIPPED),
        LoraConfig(r=4, target_modules="all-linear", **settings),
    )
    torch.manual_seed(0)
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if "lora_B" in name:
                parameter.normal_(0, 0.1)
    return network.eval()


def as_verl_saves(network: Any, folder: Path) -> Path:
    shutil.copytree(SHIPPED, folder)
    state = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    save_file(state, folder / "model.safetensors", {"format": "pt"})
    return folder


@pytest.mark.parametrize("rslora", [False, True])
def test_the_merged_model_and_the_adapter_compute_what_was_trained(rslora: bool, tmp_path: Path) -> None:
    network = trained(lora_alpha=16, use_rslora=rslora)
    model, adapter = as_verl_saves(network, tmp_path / "model"), tmp_path / "adapter"
    assert is_split(model)
    settings = {"r": 4, "lora_alpha": 16, **({"use_rslora": True} if rslora else {})}
    merge(model, adapter, settings)
    assert not is_split(model)
    merged, report = AutoModelForCausalLM.from_pretrained(model, output_loading_info=True)
    assert not any(report.values())
    assert load_file(model / "model.safetensors").keys() == load_file(SHIPPED / "model.safetensors").keys()
    expected = network(IDS).logits
    assert torch.allclose(merged(IDS).logits, expected, atol=1e-4)
    loaded = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(SHIPPED), adapter)
    assert torch.allclose(loaded(IDS).logits, expected, atol=1e-4)
    scale = 16 / (math.sqrt(4) if rslora else 4)
    assert loaded.base_model.model.model.layers[0].mlp.up_proj.scaling["default"] == scale


def test_an_adapter_of_another_form_is_refused_with_its_name(tmp_path: Path) -> None:
    model = as_verl_saves(trained(), tmp_path / "model")
    with pytest.raises(ModelError, match="has one of rank_pattern, alpha_pattern, use_dora"):
        merge(model, tmp_path / "adapter", {"r": 4, "lora_alpha": 16, "use_dora": True})
    state = load_file(model / "model.safetensors")
    state["base_model.model.model.embed_tokens.lora_embedding_A.default"] = torch.zeros(4, 8)
    save_file(state, model / "model.safetensors", {"format": "pt"})
    with pytest.raises(
        ModelError, match=r"embed_tokens\.lora_embedding_A\.default, which is not of a linear"
    ):
        merge(model, tmp_path / "adapter", {"r": 4, "lora_alpha": 16})
    assert not (tmp_path / "adapter").exists()
    assert json.loads((model / "config.json").read_text())["model_type"] == "llama"
