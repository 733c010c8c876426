"""A LoRA adapter that the trainer sends, as vLLM's model takes it.

VeRL 0.9.1 asks for ``get_unstacked_mapper``, which vLLM 0.29.0 does not have. Here vLLM's own loader gets the map of
names for adapters in files; a module that it does not know even then is an error, not left out silently.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

_SHOWN = 5
_PARTS = ("lora_a", "lora_b")


def serve_adapter(
    manager: Any, adapter_id: int, tensors: Mapping[str, torch.Tensor], peft_config: Mapping[str, Any]
) -> None:
    """Have vLLM's model serve an adapter, with PEFT's names, in place of the one with the same number."""
    from vllm.lora.lora_model import LoRAModel
    from vllm.lora.peft_helper import PEFTHelper

    helper = PEFTHelper.from_dict(dict(peft_config))
    helper.validate_legal(manager.lora_config)
    modules = manager._adapter_manager
    adapter = LoRAModel.from_lora_tensors(
        lora_model_id=adapter_id,
        tensors=dict(tensors),
        peft_helper=helper,
        device="cpu",
        dtype=manager.lora_config.lora_dtype,
        model_vocab_size=manager.vocab_size,
        weights_mapper=adapter_names(modules.model),
    )
    refuse_partial(adapter.loras, served_modules(modules))
    manager.remove_adapter(adapter_id)
    modules.add_adapter(adapter)
    modules.activate_adapter(adapter_id)


def adapter_names(model: Any) -> Any:
    """The map from a checkpoint's names to the model's for modules of adapters; None if they are the same.

    Parts of a packed module, as ``q_proj`` of ``qkv_proj``, keep their names: vLLM packs an adapter's parts itself.
    """
    mapper = getattr(model, "hf_to_vllm_mapper", None)
    return None if mapper is None else mapper.get_rename_mapper()


def served_modules(modules: Any) -> set[str]:
    return {*modules.modules, *(part for parts in modules.packed_modules.values() for part in parts)}


def refuse_partial(loras: Mapping[str, Any], served: Iterable[str]) -> None:
    """Raise RuntimeError unless every module of vLLM's adapter weights is served, and there is one."""
    if not loras:
        raise RuntimeError("the trainer sent no weights of its LoRA adapter")
    known = set(served)
    # The fused form of a mixture of experts has its first half under this name.
    unknown = sorted(name for name in loras if name.removesuffix(".base_layer") not in known)
    if unknown:
        raise RuntimeError(
            f"vLLM's model does not take {len(unknown)} of the {len(loras)} modules of the trainer's LoRA adapter: "
            f"{_shown(unknown)}. It would have sampled without what is trained there; leave them out of "
            "model.lora.target_modules."
        )
    halves = sorted(name for name, lora in loras.items() if None in [getattr(lora, part) for part in _PARTS])
    if halves:
        raise RuntimeError(
            f"the trainer sent only one of the two matrices of the LoRA adapter for {len(halves)} modules: "
            f"{_shown(halves)}"
        )


def _shown(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
