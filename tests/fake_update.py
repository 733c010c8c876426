"""What a recipe's update takes of each GPU, by fake tensors: all of VeRL's parts for FSDP2, and no memory.

python -m tests.fake_update RECIPE CONFIG.json OVERRIDE...    # JSON: most bytes of each phase, for two depths

The model is on torch's CPU device, in a group of ranks that send nothing, so that what takes a GPU is not seen: CUDA's
context, NCCL, fragments, and the entropy of log-probabilities, which VeRL compiles.
"""

import gc
import json
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._tools.fake_collectives
import verl.utils.fsdp_utils as fsdp
from omegaconf import OmegaConf
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy
from torch.distributed.tensor import DTensor
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import AutoConfig, AutoModelForCausalLM
from verl.models.transformers.monkey_patch import apply_monkey_patch
from verl.utils.ulysses import set_ulysses_sequence_parallel_group
from verl.workers.config.optimizer import build_optimizer
from verl.workers.engine.fsdp.transformer_impl import FSDPEngine

from aworld_train import recipe as recipes
from aworld_train.adapter.verl import varlen_attention
from aworld_train.adapter.verl.compose import compose
from aworld_train.adapter.verl.logprobs import logprobs_from_logits

DEPTHS = (2, 4)


class Held(TorchDispatchMode):
    """Counts the bytes of all tensors that are made within it, until they are gone."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._sizes: dict[int, int] = {}
        self._resize: Any = torch.UntypedStorage.resize_

    def __enter__(self) -> "Held":
        def resize(storage: torch.UntypedStorage, size: int) -> None:
            self._resize(storage, size)
            self._note(storage)

        torch.UntypedStorage.resize_ = resize  # type: ignore[assignment, method-assign]
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        torch.UntypedStorage.resize_ = self._resize  # type: ignore[method-assign]
        super().__exit__(*error)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(output):
            if isinstance(tensor, torch.Tensor):
                local = tensor._local_tensor if isinstance(tensor, DTensor) else tensor
                self._note(local.untyped_storage())
        return output

    def _note(self, storage: torch.UntypedStorage) -> None:
        key = id(storage)
        if key not in self._sizes:
            weakref.finalize(storage, self._drop, key)
        self.now += storage.size() - self._sizes.get(key, 0)
        self._sizes[key] = storage.size()
        self.peak = max(self.peak, self.now)

    def _drop(self, key: int) -> None:
        self.now -= self._sizes.pop(key)


def on_meta(shape: dict[str, Any], worker: Any) -> Any:
    """The model as VeRL's engine builds it, with adapters if the recipe has some."""
    model_keys = OmegaConf.create({"target_parameters": None, **worker["model"]})
    config = AutoConfig.for_model(**shape)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(
            config, dtype=torch.float32, **worker["model"]["override_config"]
        )
        apply_monkey_patch(
            model=model,
            use_remove_padding=True,
            ulysses_sp_size=worker["actor"]["ulysses_sequence_parallel_size"],
            use_fused_kernels=config.tie_word_embeddings,
            fused_kernels_backend="torch",
        )
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        if model_keys.lora_rank:
            engine: Any = type("Engine", (), {"model_config": model_keys})
            model = FSDPEngine._build_lora_module(engine, model)
    return model


def materialize(model: Any) -> None:
    """Fake weights in place of those on meta; what is tied stays tied."""
    weights: dict[Any, torch.nn.Parameter] = {}
    for module in model.modules():
        for name, weight in module._parameters.items():
            if weight is not None:
                if weight not in weights:
                    weights[weight] = torch.nn.Parameter(
                        torch.empty(weight.shape, dtype=weight.dtype), requires_grad=weight.requires_grad
                    )
                module._parameters[name] = weights[weight]
        for name, buffer in module._buffers.items():
            if buffer is not None:
                module._buffers[name] = torch.empty(buffer.shape, dtype=buffer.dtype)


def peaks(recipe: recipes.Recipe, shape: dict[str, Any]) -> dict[str, int]:
    """Most bytes in each phase of a second update, of which a first micro-batch has left its gradients."""
    worker: Any = compose(recipe, Path())["actor_rollout_ref"]
    actor, ranks = worker["actor"], recipe.cluster.ranks
    tokens, shared = actor["ppo_max_token_len_per_gpu"], actor["ulysses_sequence_parallel_size"]
    fused = shape["tie_word_embeddings"]
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=ranks)
    mesh = init_device_mesh("cpu", (ranks,), mesh_dim_names=("fsdp",))
    if shared > 1:
        parts = init_device_mesh("cpu", (ranks // shared, shared), mesh_dim_names=("dp", "sp"))
        set_ulysses_sequence_parallel_group(parts["sp"].get_group())
    model = on_meta(shape, worker)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    found = {}
    with FakeTensorMode(allow_non_fake_inputs=True), Held() as held:
        materialize(model)
        sharding = {"mesh": mesh, "mp_policy": policy, "reshard_after_forward": True}
        fsdp.apply_fsdp2(model, sharding, {})
        optimizer = build_optimizer(model.parameters(), OmegaConf.create(actor["optim"]))
        ids = torch.zeros(1, tokens, dtype=torch.long)
        ends = torch.tensor([0, tokens * shared], dtype=torch.int32)
        varlen_attention._bounds = lambda positions: (ends, tokens * shared)
        fused_arguments = {"temperature": 1.0, "shift_labels": ids, "return_dict": True} if fused else {}

        def log_probabilities() -> torch.Tensor:
            with torch.autocast("cpu", torch.bfloat16):
                output = model(
                    input_ids=ids, attention_mask=None, position_ids=ids, use_cache=False, **fused_arguments
                )
                found: torch.Tensor = output.log_probs if fused else logprobs_from_logits(output.logits, ids)
                return found

        def forward() -> None:
            with torch.no_grad():
                log_probabilities()
            model.reshard()

        def backward() -> None:
            log_probabilities().sum().backward()

        def step() -> None:
            fsdp.fsdp2_clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()

        def measure(phase: str, act: Callable[[], None]) -> None:
            gc.collect()
            held.peak = held.now
            act()
            found[phase] = held.peak

        backward()
        step()
        optimizer.zero_grad()
        measure("log-probability", forward)
        backward()
        measure("backward", backward)
        measure("optimizer step", step)
    dist.destroy_process_group()
    return found


def main() -> None:
    """Print the peaks of each depth."""
    name, file, *overrides = sys.argv[1:]
    shape = json.loads(Path(file).read_text())
    fsdp.get_device_id = lambda: "cpu"
    recipe = recipes.load(name, overrides)
    found = {depth: peaks(recipe, shape | {"num_hidden_layers": depth}) for depth in DEPTHS}
    sys.stdout.write("\n" + json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
