"""The weights of a LoRA run, as VeRL saves them, as a model and an adapter that other programs load.

VeRL 0.9.1 writes them under PEFT's names (``base_model.model.X.base_layer.weight``), of which transformers finds no
weight; its merger of shards writes the base under plain names, and the adapter beside it.
"""

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aworld_train.atomic import write_text
from aworld_train.errors import ModelError
from aworld_train.model.weights import INDEX, entries

ADAPTER = "lora_adapter"
_PREFIX = "base_model.model."
_MATRIX = re.compile(r"(.+)\.lora_([AB])(?:\.default)?\.weight")
OTHER_FORMS = ("rank_pattern", "alpha_pattern", "use_dora")


def is_split(model: Path) -> bool:
    names = (name for file in model.glob("*.safetensors") for name in entries(file))
    return (model / ADAPTER).is_dir() or any(name.startswith(_PREFIX) for name in names)


def merge(
    model: Path, adapter: Path, settings: Mapping[str, Any], *, trust_remote_code: bool = False
) -> None:
    """Replace the weights in a model's folder by the merged ones, and write the adapter into a folder of its own.

    ``settings`` are those of PEFT's ``adapter_config.json``: ``r`` and ``lora_alpha`` at least.
    """
    import torch
    from safetensors.torch import save_file
    from transformers import AutoConfig
    from verl.utils.model import get_hf_auto_model_class
    from verl.utils.transformers_compat import drop_tied_target_keys

    weights, matrices = _read(model)
    if any(settings.get(key) for key in OTHER_FORMS):
        raise ModelError(
            f"The LoRA adapter of {model} has one of {', '.join(OTHER_FORMS)}, and is not merged."
        )
    rank = settings["r"]
    scale = settings["lora_alpha"] / (math.sqrt(rank) if settings.get("use_rslora") else rank)
    adapter.mkdir(exist_ok=True)
    save_file(
        {
            f"{_PREFIX}{name}.lora_{side}.weight": matrix.contiguous()
            for name, pair in matrices.items()
            for side, matrix in pair.items()
        },
        adapter / "adapter_model.safetensors",
        {"format": "pt"},
    )
    targets = sorted({name.rpartition(".")[2] for name in matrices})
    described = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "target_modules": targets, **settings}
    write_text(adapter / "adapter_config.json", json.dumps(described, indent=2) + "\n", 0o644)
    for name, pair in matrices.items():
        weight = weights[f"{name}.weight"]
        change = scale * (pair["B"].float() @ pair["A"].float())
        weights[f"{name}.weight"] = (weight.float() + change).to(weight.dtype)
    config = AutoConfig.from_pretrained(model, trust_remote_code=trust_remote_code)
    with torch.device("meta"):
        empty = get_hf_auto_model_class(config).from_config(config, trust_remote_code=trust_remote_code)
    drop_tied_target_keys(weights, empty, config)
    (model / INDEX).unlink(missing_ok=True)
    # It also gives the weights the names of the format, which are not always those of the modules.
    empty.save_pretrained(model, state_dict=weights)


def _read(model: Path) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    from safetensors.torch import load_file

    weights: dict[str, Any] = {}
    matrices: dict[str, dict[str, Any]] = {}
    for file in (*model.glob("*.safetensors"), *(model / ADAPTER).glob("*.safetensors")):
        for key, tensor in load_file(file).items():
            name = key.removeprefix(_PREFIX)
            if matrix := _MATRIX.fullmatch(name):
                matrices.setdefault(matrix[1], {})[matrix[2]] = tensor
            elif "lora_" in name:
                raise ModelError(f"The LoRA adapter of {model} has {key}, which is not of a linear layer.")
            else:
                weights[name.replace(".base_layer.", ".")] = tensor
    return weights, matrices
