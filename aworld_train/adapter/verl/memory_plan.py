"""Where the memory of GPUs goes, phase by phase, computed from the model's shape and the recipe.

What VeRL 0.9.1 does decides it. FSDP2 keeps weights, gradients and AdamW's two moments in fp32, divided among all
ranks; with LoRA the frozen weights are in fp32 too. A layer is gathered in bf16 when it is computed; the hidden states
before each layer are kept, and the rest is computed again on the way back. Moments that wait in the machine come back
before the first pass of an update, not before the optimizer's step. docs/how-to/gpu.md has measured figures beside it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aworld_train.adapter.base import MemoryPlan
from aworld_train.adapter.verl.attention import TORCH, attention_of
from aworld_train.adapter.verl.model_checks import FUSED, has_experts, text_config, ties_head, whole
from aworld_train.adapter.verl.name_checks import value_at
from aworld_train.recipe.checks import batch_tokens
from aworld_train.recipe.device import on_cpu
from aworld_train.recipe.schema import Offload, Recipe, Strategy

_MIB = 1 << 20
_PROCESS = 1174 * _MIB
"""CUDA's context and NCCL's buffers of a trainer that holds nothing else: on one H100, driver 580."""
_ASLEEP, _ASLEEP_SHARED = 820 * _MIB, 2458 * _MIB
"""Of vLLM asleep, by reports: 0.8 GiB; 2.4 or more where GPUs share the model's layers."""
_BUCKET = 2048 * _MIB
"""VeRL's ``update_weights_bucket_megabytes``."""
_MAX_WAIT = 1800
"""torch's, in seconds: verl/workers/engine_workers.py sets no other."""
_FRAGMENTS = 0.08
"""Of the way back: what torch's allocator holds beyond what is in use; on one H100 11 % beyond fake tensors."""
_FUSED_ROWS = 512
"""Tokens whose logits VeRL's fused head has at a time."""


@dataclass(frozen=True)
class Shape:
    """A dense decoder's sizes; ``query`` and ``key`` are heads times their size."""

    layers: int
    hidden: int
    query: int
    key: int
    ffn: int
    vocabulary: int
    is_tied: bool

    @property
    def layer(self) -> int:
        """Without the few of norms and biases."""
        return self.hidden * (2 * self.query + 2 * self.key + 3 * self.ffn)

    @property
    def embedding(self) -> int:
        return self.vocabulary * self.hidden

    @property
    def root(self) -> int:
        """The embedding, and the head where it is another one."""
        return self.embedding * (1 if self.is_tied else 2)

    @property
    def parameters(self) -> int:
        return self.layers * self.layer + self.root

    def adapter(self, rank: int) -> int:
        """Parameters of LoRA on all linear layers, which is the default of ``model.lora.target_modules``."""
        sides = 7 * self.hidden + 2 * self.query + 2 * self.key + 3 * self.ffn
        return self.layers * rank * sides


def shape_of(config: Mapping[str, Any] | None, *, is_tied: bool) -> Shape | None:
    """The shape that a model's configuration describes; None if it describes another kind of model."""
    if config is None or has_experts(config):
        return None
    names = ("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size", "vocab_size")
    layers, hidden, heads, ffn, vocabulary = (whole(config, name) for name in names)
    if not (layers and hidden and heads and ffn and vocabulary):
        return None
    size = whole(config, "head_dim") or hidden // heads
    keys = whole(config, "num_key_value_heads") or heads
    return Shape(layers, hidden, heads * size, keys * size, ffn, vocabulary, is_tied)


def memory_plan(recipe: Recipe, gpu_bytes: int) -> MemoryPlan | None:
    if on_cpu(recipe) or recipe.trainer.strategy is not Strategy.fsdp2:
        return None
    shape = shape_of(text_config(recipe), is_tied=ties_head(recipe) is True)
    return None if shape is None else plan_of(recipe, shape, gpu_bytes)


def plan_of(recipe: Recipe, shape: Shape, gpu_bytes: int) -> MemoryPlan:
    offload, ranks, rank = recipe.trainer.offload, recipe.cluster.ranks, recipe.model.lora.rank
    trained = shape.adapter(rank) if rank else shape.parameters
    weights = 4 * ((shape.parameters if rank else 0) + trained)
    moments = 8 * trained
    parts = {"weights": weights // ranks, "moments": moments // ranks}
    waits = {
        "weights": offload in (Offload.params, Offload.all),
        "moments": offload in (Offload.optimizer, Offload.all),
    }
    stays = {part: size for part, size in parts.items() if not waits[part]}
    away = weights * waits["weights"] + moments * waits["moments"]
    asleep = _ASLEEP if recipe.rollout.tensor_parallel == 1 else _ASLEEP_SHARED
    process = {"process": _PROCESS, "engine asleep": asleep}
    whole_weight = {"largest weight": 4 * shape.embedding}
    # On one GPU FSDP2 has a copy of the layer in bf16 as well.
    # A head of its own is gathered without the embedding.
    gathered = {"gathered weights": 2 * (shape.embedding + 2 * shape.layer)}
    activations = _Activations(recipe, shape)
    state = {**parts, "gradients": 4 * trained // ranks}
    backward = {**state, **gathered, **activations.backward()}
    return MemoryPlan(
        shape.parameters,
        {
            "load": {"process": _PROCESS, "weights": parts["weights"], **whole_weight},
            "sample": {"process": _PROCESS, **stays, "engine": int(recipe.rollout.gpu_memory * gpu_bytes)},
            "log-probability": {
                **process,
                **stays,
                "weights": parts["weights"],
                **gathered,
                **activations.forward(),
            },
            "backward": {**process, **backward, "fragments": int(_FRAGMENTS * sum(backward.values()))},
            "optimizer step": {**process, **state},
            "transfer": {
                "process": _PROCESS,
                **stays,
                "engine": 2 * shape.parameters // recipe.rollout.tensor_parallel,
                "bucket": _BUCKET,
                **whole_weight,
            },
            "checkpoint": {**process, **stays, "weights": parts["weights"], **whole_weight},
        },
        away // recipe.cluster.nodes,
        4 * shape.parameters,
        _MAX_WAIT,
    )


class _Activations:
    """What a pass over the most tokens of one GPU holds."""

    def __init__(self, recipe: Recipe, shape: Shape):
        self._shape, self._attention = shape, attention_of(recipe)
        self._trains_all = not recipe.model.lora.rank
        self._tokens = (
            batch_tokens(recipe)
            if recipe.trainer.dynamic_batches
            else recipe.max_episode_tokens
            * recipe.trainer.microbatch_size
            // recipe.trainer.sequence_parallel
        )
        is_fused = value_at(recipe.raw, FUSED)
        by_default = shape.is_tied and not recipe.trainer.shared_prefix
        self._is_fused = by_default if is_fused is None else bool(is_fused)

    def forward(self) -> dict[str, int]:
        """One layer's attention or feed-forward, or later the logits, with as much for their entropy."""
        shape = self._shape
        widths = max(6 * shape.ffn, 10 * shape.query) + 4 * shape.hidden
        logits = (
            16 * _FUSED_ROWS * shape.vocabulary if self._is_fused else 4 * self._tokens * shape.vocabulary
        )
        return self._larger(self._tokens * widths + self._mask(), logits)

    def backward(self) -> dict[str, int]:
        """The hidden states before all layers; logits, or later one layer; gradients that are not divided yet."""
        shape = self._shape
        widths = 14 * shape.hidden + 14 * shape.query + 8 * shape.key + 12 * shape.ffn
        layer = self._tokens * widths + self._mask() + self._gathered(shape.layer)
        return {
            "hidden states": 2 * shape.layers * self._tokens * shape.hidden,
            **self._larger(layer, self._head()),
        }

    def _head(self) -> int:
        """Logits and their gradients; later the gradients of the head's weights."""
        shape, gathered = self._shape, self._gathered(self._shape.embedding)
        entries = (_FUSED_ROWS if self._is_fused else self._tokens) * shape.vocabulary
        if self._is_fused:  # it computes the gradients of its weights also where they are frozen
            return max(18 * entries + 2 * shape.embedding + 16 * self._tokens * shape.hidden, gathered)
        return max(4 * entries, 2 * entries + gathered)

    def _gathered(self, parameters: int) -> int:
        """Gradients in bf16, and in fp32 to be divided."""
        return 6 * parameters if self._trains_all else 0

    @staticmethod
    def _larger(layer: int, logits: int) -> dict[str, int]:
        """Of two parts that are not there at the same time."""
        return {"one layer": layer} if layer > logits else {"logits": logits}

    def _mask(self) -> int:
        """Of sdpa: for each two tokens whether one sees the other, and the same in bf16 for the kernel."""
        return 3 * self._tokens**2 if self._attention == TORCH else 0
