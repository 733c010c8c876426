"""Megatron and SGLang: composed to what VeRL itself takes, and refused where they cannot work."""

import json
import re
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from aworld_train import recipe as recipes
from aworld_train.adapter.base import recipe_faults
from aworld_train.adapter.verl import megatron, recipe_checks
from aworld_train.adapter.verl.attention import attention_remarks
from aworld_train.adapter.verl.compose import compose
from aworld_train.adapter.verl.memory_plan import memory_plan
from aworld_train.adapter.verl.recipe_keys import recipe_from
from aworld_train.errors import RecipeError
from aworld_train.recipe.schema import Recipe
from aworld_train.recipe.tree import dotted

BASE: dict[str, Any] = {
    "model": {"path": "org/model"},
    "dataset": {"train": "t.parquet", "val": "v.parquet"},
    "rollout": {"engine": "vllm", "n": 4},
    "trainer": {
        "strategy": "megatron",
        "batch_size": 8,
        "microbatch_size": 1,
        "megatron": {
            "tensor_parallel": 2,
            "pipeline_parallel": 2,
            "context_parallel": 2,
            "expert_parallel": 4,
        },
    },
    "cluster": {"device": "cuda", "gpus_per_node": 8, "nodes": 2, "launcher": "slurm"},
}
MODEL = {"num_attention_heads": 32, "num_key_value_heads": 4, "num_hidden_layers": 48, "num_experts": 128}
SIZE = "trainer.megatron"


def loaded(*overrides: str) -> Recipe:
    return recipes.load(BASE, list(overrides))


def faults(*overrides: str) -> dict[str, str]:
    try:
        return {dotted(key): text for key, text in recipe_faults(loaded(*overrides))}
    except RecipeError as error:
        return {"": error.message}


@pytest.mark.parametrize("dynamic", [False, True])
def test_verl_s_own_check_takes_what_megatron_and_sglang_are_composed_to(
    dynamic: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VERL_PLATFORM", "cpu")
    from verl.utils.config import omega_conf_to_dataclass, validate_config
    from verl.workers.config import McoreActorConfig, McoreOptimizerConfig

    sizes = [f"trainer.dynamic_batches={dynamic}", "trainer.offload=all", "trainer.lr=0.5"]
    recipe = loaded("rollout.engine=sglang", "rollout.engine_args={page_size: 16}", *sizes)
    assert list(recipe_faults(recipe)) == []
    composed: Any = OmegaConf.create(compose(recipe, tmp_path))
    validate_config(composed, use_reference_policy=False, use_critic=False)
    actor = omega_conf_to_dataclass(composed.actor_rollout_ref.actor)
    assert isinstance(actor, McoreActorConfig) and isinstance(actor.optim, McoreOptimizerConfig)
    assert actor.optim.lr == 0.5
    engine, ref = actor.engine, composed.actor_rollout_ref.ref.megatron
    for part in (engine, ref):
        assert (part.tensor_model_parallel_size, part.pipeline_model_parallel_size) == (2, 2)
        assert (part.context_parallel_size, part.expert_model_parallel_size) == (2, 4)
        assert part.expert_tensor_parallel_size == 1
        assert part.override_transformer_config["recompute_granularity"] == "full"
    assert engine.param_offload and engine.optimizer_offload and engine.use_mbridge
    assert composed.actor_rollout_ref.rollout.name == "sglang"
    assert composed.actor_rollout_ref.rollout.engine_kwargs.sglang == {"page_size": 16}
    assert composed.critic.strategy == "megatron"
    assert "override_config" not in {
        key for key, value in composed.actor_rollout_ref.model.items() if value
    }, "transformers' attention is FSDP's"


def test_no_plan_of_memory_and_no_attention_is_said_for_megatron(tmp_path: Path) -> None:
    sizes = {"hidden_size": 64, "intermediate_size": 64, "vocab_size": 64}
    (tmp_path / "config.json").write_text(
        json.dumps(sizes | {"num_hidden_layers": 2, "num_attention_heads": 2})
    )
    ones = [f"{SIZE}.{name}_parallel=1" for name in ("tensor", "pipeline", "context", "expert")]
    by_megatron = loaded(f"model.path={tmp_path}")
    by_fsdp = loaded(f"model.path={tmp_path}", "trainer.strategy=fsdp2", *ones)
    assert memory_plan(by_megatron, 80 << 30) is None and memory_plan(by_fsdp, 80 << 30) is not None
    assert not list(attention_remarks(by_megatron)) and list(attention_remarks(by_fsdp))


@pytest.mark.parametrize(
    ("overrides", "key", "text"),
    [
        (["model.lora.rank=8"], "model.lora.rank", "fsdp2 alone"),
        (["model.attention=sdpa"], "model.attention", "attention of its own"),
        (["cluster.device=npu"], "trainer.strategy", "NVIDIA GPUs alone"),
        (["rollout.engine=sglang", "rollout.top_p=0.9"], "rollout.top_p", "from the whole distribution"),
        (["rollout.top_k=20"], "rollout.top_k", "from the whole distribution"),
        (
            ["verl.actor_rollout_ref.actor.strategy=fsdp"],
            "verl.actor_rollout_ref.actor.strategy",
            "`trainer.strategy`",
        ),
        (
            ["verl.actor_rollout_ref.actor.megatron.tensor_model_parallel_size=4"],
            "verl.actor_rollout_ref.actor.megatron.tensor_model_parallel_size",
            "`trainer.megatron.tensor_parallel`",
        ),
        (
            ["verl.actor_rollout_ref.actor.fsdp_config.fsdp_size=2"],
            "verl.actor_rollout_ref.actor.fsdp_config",
            "no key",
        ),
    ],
)
def test_what_the_strategy_or_the_engine_cannot_use_is_refused(
    overrides: list[str], key: str, text: str
) -> None:
    assert faults() == {}
    found = faults(*overrides)
    assert text in (found.get(key) or found[""])


def test_a_raw_key_of_megatron_that_verl_has_is_taken_and_a_wrong_one_is_not() -> None:
    section = "verl.actor_rollout_ref.actor.megatron"
    assert faults(f"{section}.use_megatron_fsdp=true") == {}
    assert "did you mean" in faults(f"{section}.use_megatron_fsdpp=true")[f"{section}.use_megatron_fsdpp"]


@pytest.mark.parametrize(
    ("overrides", "text"),
    [
        ([f"{SIZE}.context_parallel=3"], "divides the model among 12 GPUs"),
        ([f"{SIZE}.expert_parallel=16"], "divides the experts among 32 GPUs"),
        (["trainer.sequence_parallel=2"], "`trainer.megatron.context_parallel`"),
        (["trainer.strategy=fsdp2"], "`trainer.megatron.tensor_parallel` is used with"),
        (["trainer.batch_size=1", "rollout.n=3"], "must be a multiple of the 2 ranks that share them"),
        (["trainer.dynamic_batches=true", "trainer.max_batch_tokens=700"], "less than the longest episode"),
    ],
)
def test_sizes_that_do_not_divide_the_gpus_are_refused(overrides: list[str], text: str) -> None:
    with pytest.raises(RecipeError, match=re.escape(text)):
        loaded(*overrides)


def test_ranks_that_share_a_sequence_have_its_tokens_together() -> None:
    tokens = ["trainer.dynamic_batches=true", "dataset.max_prompt_tokens=1024"]
    recipe = loaded(*tokens, "rollout.max_response_tokens=1024", "trainer.max_batch_tokens=1024")
    assert recipe.trainer.ranks_per_sequence * 1024 == recipe.max_episode_tokens


@pytest.mark.parametrize(
    ("config", "key", "text"),
    [
        ({"num_attention_heads": 33}, f"{SIZE}.tensor_parallel", "(2) must divide the 33 attention heads"),
        ({"num_key_value_heads": 1}, f"{SIZE}.tensor_parallel", "must divide the 1 key and value heads"),
        ({"num_hidden_layers": 47}, f"{SIZE}.pipeline_parallel", "must divide the 47 layers"),
        ({"num_experts": 6}, f"{SIZE}.expert_parallel", "must divide the 6 experts of a layer"),
        (
            {"num_experts": None, "n_routed_experts": 6},
            f"{SIZE}.expert_parallel",
            "must divide the 6 experts of a layer",
        ),
        ({"num_experts": None}, f"{SIZE}.expert_parallel", "the model has no experts"),
    ],
)
def test_sizes_that_do_not_divide_the_model_are_refused(
    tmp_path: Path, config: dict[str, Any], key: str, text: str
) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(MODEL))
    assert faults(f"model.path={tmp_path}") == {}
    file.write_text(json.dumps(MODEL | config))
    found = faults(f"model.path={tmp_path}")
    assert list(found) == [key] and text in found[key]


@pytest.mark.parametrize(
    ("launcher", "present", "missing"),
    [
        ("slurm", ["megatron", "megatron.core", "transformer_engine"], "megatron-bridge"),
        ("slurm", ["megatron", "megatron.core", "megatron.bridge", "transformer_engine"], None),
        ("slurm", [], "megatron-core"),
        ("ray", [], None),
    ],
)
def test_a_machine_with_gpus_has_the_packages_of_megatron(
    monkeypatch: pytest.MonkeyPatch, launcher: str, present: list[str], missing: str | None
) -> None:
    monkeypatch.setattr(megatron, "gpus_of_machine", lambda device: 8)
    monkeypatch.setattr(
        megatron, "find_spec", lambda name: ModuleSpec(name, None) if name in present else None
    )
    found = faults(f"cluster.launcher={launcher}")
    assert (f"needs the Python package {missing}," in found.get("trainer.strategy", "")) is bool(missing)


def test_sglang_is_refused_where_it_cannot_run(monkeypatch: pytest.MonkeyPatch) -> None:
    assert faults("rollout.engine=sglang") == {}
    monkeypatch.setattr(recipe_checks, "gpus_of_machine", lambda device: 8)
    assert "not installed" in faults("rollout.engine=sglang")["rollout.engine"]
    assert faults("rollout.engine=sglang", "cluster.launcher=ray") == {}
    on_cpu = {**BASE, "trainer": {}, "cluster": {"device": "cpu"}}
    found = recipe_faults(recipes.load(on_cpu, ["rollout.engine=sglang", "trainer.batch_size=8"]))
    assert "samples on GPUs" in {dotted(key): text for key, text in found}["rollout.engine"]


def test_a_configuration_of_verl_s_with_megatron_is_taken_as_a_recipe() -> None:
    sizes = {"tensor_model_parallel_size": 2, "expert_model_parallel_size": 2, "use_mbridge": True}
    moved = recipe_from(
        {
            "actor_rollout_ref": {
                "model": {"path": "org/model"},
                "actor": {"strategy": "megatron", "megatron": sizes},
                "rollout": {"name": "sglang"},
            },
            "trainer": {"n_gpus_per_node": 4},
        }
    )
    assert moved is not None
    recipe = recipes.load(moved, ["cluster.device=cuda"])
    assert (recipe.trainer.megatron.tensor_parallel, recipe.trainer.megatron.expert_parallel) == (2, 2)
    assert recipe.raw["actor_rollout_ref"]["actor"]["megatron"] == {"use_mbridge": True}
