"""Attention on GPUs is what is installed, and never one that computes something else."""

import json
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from aworld_train import recipe as recipes
from aworld_train.adapter.base import find
from aworld_train.adapter.verl import attention
from aworld_train.adapter.verl.attention import (
    FLASH,
    TORCH,
    TRIE,
    TRIE_MODULE,
    VARLEN,
    VARLEN_MODULE,
    attention_faults,
    attention_of,
    shared_prefix_faults,
)
from aworld_train.adapter.verl.compose import LOGPROBS_MODULE, own_keys

_SHARED = ["cluster.gpus_per_node=2", "trainer.sequence_parallel=2"]
MODEL = "actor_rollout_ref.model"
SIZES: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "vocab_size": 64,
}
FAMILIES = ("qwen2", "qwen3", "llama", "mistral")


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The packages that are taken for installed."""
    packages: set[str] = set()
    monkeypatch.setattr(
        attention, "find_spec", lambda name: ModuleSpec(name, None) if name in packages else None
    )
    return packages


def faults(*overrides: str) -> list[str]:
    return [text for _, text in attention_faults(recipes.load("base/gpu-1", overrides))]


def test_flash_attention_is_taken_where_it_is_installed_and_torch_s_where_it_is_not(
    installed: set[str],
) -> None:
    assert attention_of(recipes.load("base/gpu-1")) == VARLEN
    installed.add("flash_attn")
    assert attention_of(recipes.load("base/gpu-1")) == FLASH
    assert attention_of(recipes.load("base/gpu-1", ["model.attention=sdpa"])) == TORCH
    assert attention_of(recipes.load("quickstart")) == TORCH, "it needs a GPU"


@pytest.mark.parametrize(
    ("family", "expected"), [("qwen3", VARLEN), ("llama", VARLEN), ("gemma2", TORCH), (None, VARLEN)]
)
def test_torch_s_own_flash_attention_is_taken_for_the_families_that_are_compared(
    installed: set[str], tmp_path: Path, family: str | None, expected: str
) -> None:
    if family is not None:
        (tmp_path / "config.json").write_text(json.dumps({"model_type": family}))
    recipe = recipes.load("base/gpu-1", [f"model.path={tmp_path}"])
    assert attention_of(recipe) == expected
    composed = own_keys(recipe, tmp_path)
    modules = [LOGPROBS_MODULE, VARLEN_MODULE] if expected == VARLEN else [LOGPROBS_MODULE]
    assert composed[f"{MODEL}.external_lib"] == modules
    assert composed[f"{MODEL}.override_config"] == {"attn_implementation": expected}
    shared = recipes.load("base/gpu-1", [f"model.path={tmp_path}", *_SHARED])
    assert attention_of(shared) == (VARLEN if expected == VARLEN else FLASH)
    with_npu = recipes.load("base/gpu-1", [f"model.path={tmp_path}", "cluster.device=npu"])
    assert attention_of(with_npu) == TORCH, "its kernel is CUDA's"
    installed.add("flash_attn")
    assert attention_of(recipe) == FLASH
    assert f"{MODEL}.external_lib" not in own_keys(recipe, tmp_path)


def test_gpus_share_sequences_with_flash_attention_alone(installed: set[str]) -> None:
    assert attention_of(recipes.load("base/gpu-1", _SHARED)) == VARLEN
    assert not faults(*_SHARED)
    assert not faults(*_SHARED, f"model.attention={VARLEN}"), "it is in flash attention's place"
    for other in ("sdpa", "eager"):
        (refusal,) = faults(*_SHARED, f"model.attention={other}")
        assert f"model.attention is {other}" in refusal and "trainer.sequence_parallel to 1" in refusal
        assert not faults(f"model.attention={other}")


@pytest.mark.parametrize(
    ("named", "package"),
    [
        ("flash_attention_2", "flash_attn"),
        ("flash_attention_3", "flash_attn_interface"),
        ("kernels-community/flash-attn2", "kernels"),
    ],
)
def test_attention_that_is_not_installed_is_refused_on_a_machine_with_gpus(
    installed: set[str], named: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not faults(f"model.attention={named}"), "the recipe is for another machine"
    monkeypatch.setattr(attention, "gpus_of_machine", lambda device: 1)
    (refusal,) = faults(f"model.attention={named}")
    assert f"{named}, which needs the Python package {package}," in refusal
    assert not faults("model.attention=sdpa")
    installed.add(package)
    assert not faults(f"model.attention={named}")
    recipe = recipes.load("quickstart", [f"model.attention={named}"])
    ((key, text),) = attention_faults(recipe)
    assert key == ("model", "attention") and "on GPUs alone" in text


def test_what_was_chosen_is_said_at_the_start(installed: set[str], tmp_path: Path) -> None:
    def said(name: str, *overrides: str) -> tuple[str, ...]:
        return tuple(find("verl").compile(recipes.load(name, overrides), tmp_path).remarks)

    chosen = f"The trainer computes attention with {VARLEN} (model.attention), because flash-attn is not installed."
    assert said("base/gpu-1") == (chosen,)
    assert said("base/gpu-1", "model.attention=eager") == () == said("quickstart")
    installed.add("flash_attn")
    assert said("base/gpu-1") == (f"The trainer computes attention with {FLASH} (model.attention).",)


def test_torch_s_own_flash_attention_is_refused_on_a_cpu() -> None:
    ((key, text),) = attention_faults(recipes.load("quickstart", [f"model.attention={VARLEN}"]))
    assert key == ("model", "attention") and "needs torch for CUDA, which computes on GPUs alone" in text


def shared_prefix_refusals(name: str, *overrides: str) -> list[str]:
    recipe = recipes.load(name, ["trainer.shared_prefix=true", *overrides])
    return [text for _, text in shared_prefix_faults(recipe)]


@pytest.mark.parametrize("name", ["quickstart", "base/gpu-1"])
def test_shared_prefixes_are_computed_by_attention_in_tries(name: str, tmp_path: Path) -> None:
    recipe = recipes.load(name, ["trainer.shared_prefix=true"])
    keys = own_keys(recipe, tmp_path)
    assert keys[f"{MODEL}.override_config"] == {"attn_implementation": TRIE}
    assert (TRIE_MODULE in keys[f"{MODEL}.external_lib"]) == (name != "quickstart")
    assert not list(shared_prefix_faults(recipe)) and not list(attention_faults(recipe))


def test_shared_prefixes_are_refused_where_a_rank_has_parts_of_rows_or_attention_is_chosen() -> None:
    for more in (["trainer.strategy=megatron"], _SHARED):
        (text,) = shared_prefix_refusals("base/gpu-1", *more)
        assert text.startswith("trainer.shared_prefix needs whole rows on each rank")
        assert "Leave it out." in text
    (text,) = shared_prefix_refusals("quickstart", "trainer.method=sft")
    assert text == "trainer.shared_prefix is for trainer.method=rl. Leave it out."
    (text,) = shared_prefix_refusals("quickstart", "model.attention=eager")
    assert "an attention of its own" in text
    ((key, _),) = shared_prefix_faults(recipes.load("quickstart", [f"model.attention={TRIE}"]))
    assert key == ("trainer", "shared_prefix")


@pytest.mark.parametrize("key", ["actor_rollout_ref.model.use_fused_kernels", "distillation.enabled"])
def test_what_takes_more_of_a_token_than_its_probability_is_refused_with_shared_prefixes(key: str) -> None:
    (text,) = shared_prefix_refusals("quickstart", f"verl.{key}=true")
    assert f"verl.{key} does not take" in text


@pytest.mark.parametrize(
    ("config", "is_right"),
    [
        ({"model_type": "qwen3", "sliding_window": 4096, "use_sliding_window": False}, True),
        ({"model_type": "qwen2", "sliding_window": 4096}, True),
        ({"model_type": "qwen2", "sliding_window": 4096, "use_sliding_window": True}, False),
        ({"model_type": "mistral", "sliding_window": None}, True),
        ({"model_type": "mistral"}, False),
        ({"model_type": "llama"}, True),
        ({"model_type": "mamba2"}, False),
        ({"model_type": "qwen3_next"}, False),
        ({"model_type": "mistral3", "text_config": {"model_type": "llama"}, "vision_config": {}}, False),
    ],
    ids=str,
)
def test_a_trie_is_refused_for_models_that_see_more_or_less_than_all_tokens_before(
    tmp_path: Path, config: dict[str, Any], is_right: bool
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    refusals = shared_prefix_refusals("quickstart", f"model.path={tmp_path}")
    assert len(refusals) == (not is_right)
    assert all("a token sees all tokens before it" in text for text in refusals)


def tiny(family: str, *, attention: str = TORCH, **more: Any) -> Any:
    """A random model of a family, in float32: the same one with every attention."""
    torch.manual_seed(0)
    config = AutoConfig.for_model(family, **SIZES, **more)
    return AutoModelForCausalLM.from_config(config, attn_implementation=attention).float()


def gradients(model: Any, values: torch.Tensor) -> torch.Tensor:
    """Of all parameters, by the sum of the values' squares."""
    model.zero_grad()
    values.square().sum().backward()
    return torch.cat([each.grad.flatten() for each in model.parameters()])


def assert_packed_as_separate(packing: Any, plain: Any) -> None:
    """As VeRL packs rows for a GPU: one behind the other, with positions that begin anew with each sequence."""
    rows = [torch.randint(0, 64, (1, length)) for length in (5, 17, 1, 9)]
    packed = torch.cat(rows, dim=1)
    positions = torch.cat([torch.arange(row.shape[1])[None] for row in rows], dim=1)

    def together() -> torch.Tensor:
        return packing(
            input_ids=packed, position_ids=positions, attention_mask=None, use_cache=False
        ).logits.log_softmax(-1)

    def alone() -> torch.Tensor:
        logits = [plain(input_ids=row, use_cache=False).logits for row in rows]
        return torch.cat(logits, dim=1).log_softmax(-1)

    assert torch.allclose(together(), alone(), atol=1e-5)
    assert torch.allclose(gradients(packing, together()), gradients(plain, alone()), atol=1e-3)


@pytest.mark.parametrize("family", FAMILIES)
def test_packed_rows_have_the_probabilities_of_separate_ones(family: str) -> None:
    model = tiny(family)
    assert_packed_as_separate(model, model)


@pytest.mark.parametrize("family", FAMILIES)
def test_probabilities_by_parts_are_those_of_whole_logits(family: str) -> None:
    """What VeRL puts in the place of a model's forward pass with ``use_fused_kernels``."""
    from verl.models.transformers.dense_common import forward_with_torch_backend

    model = tiny(family, tie_word_embeddings=True)
    rows, temperature = torch.randint(0, 64, (1, 1100)), 0.7  # more than two parts
    following = torch.roll(rows, shifts=-1, dims=-1)

    def whole() -> torch.Tensor:
        logits = model(input_ids=rows, use_cache=False).logits / temperature
        return logits.log_softmax(-1).gather(-1, following[..., None])[..., 0]

    def by_parts() -> torch.Tensor:
        found = forward_with_torch_backend(
            model, input_ids=rows, temperature=temperature, shift_labels=following, return_dict=True
        )
        return found.log_probs

    assert torch.allclose(whole(), by_parts(), atol=1e-5)
    assert torch.allclose(gradients(model, whole()), gradients(model, by_parts()), atol=1e-3)
