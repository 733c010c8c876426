"""No raw key of VeRL changes what supervision, records, scores and sizes of a run depend on."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from aworld_train import recipe as recipes
from aworld_train.adapter.base import framework_of, owned_faults, recipe_faults
from aworld_train.adapter.verl import schema
from aworld_train.adapter.verl.compose import TRAINERS, compose, own_keys, sft_keys
from aworld_train.adapter.verl.framework import VerlFramework
from aworld_train.adapter.verl.key_rules import IGNORED_SECTIONS
from aworld_train.adapter.verl.name_checks import RAW_NAMES, value_at
from aworld_train.adapter.verl.owned_keys import OWNED_KEYS, SFT_OWNED
from aworld_train.adapter.verl.recipe_keys import ACTOR, MODEL, REF, ROLLOUT, SAME_MEANING, SFT_KEYS, sft_key
from aworld_train.errors import RecipeError
from aworld_train.recipe.output import plain_dict
from aworld_train.recipe.schema import Method, Mode, Recipe, Strategy
from aworld_train.recipe.tree import KeyPath, dotted, map_values, merge, nested

pytestmark = pytest.mark.skipif(find_spec("verl") is None, reason="needs the extra cpu or gpu")

GPU = {
    "model": {"path": "org/model"},
    "dataset": {"train": "t.parquet", "val": "v.parquet"},
    "rollout": {"engine": "vllm"},
}
CPU = merge(GPU, {"rollout": {"engine": "transformers"}})
INIT = "ray_kwargs.ray_init"
CANDIDATES: tuple[Any, ...] = (8192, ["other"], "other", {"a": 1}, True, {"enable": True})
FREE = {
    f"{MODEL}.use_remove_padding": "speed and memory",
    f"{MODEL}.use_fused_kernels": "speed and memory",
    f"{MODEL}.enable_gradient_checkpointing": "speed and memory",
    f"{MODEL}.external_lib": "registers the user's own code; not without a GPU, which `recipe_checks` sees to",
    "data.dataloader_num_workers": "speed and memory",
    f"{ACTOR}.optim.override_optimizer_config.*": "speed and memory",
    f"{ACTOR}.use_torch_compile": "speed and memory",
    f"{ACTOR}.fsdp_config.*": "speed, memory and precision, except for the owned ones",
    f"{ACTOR}.megatron.*": "speed, memory and precision, except for the owned ones",
    f"{REF}.use_torch_compile": "speed and memory",
    f"{REF}.fsdp_config.*": "speed, memory and precision",
    f"{ROLLOUT}.load_format": "how weights reach the engine before the first step",
    f"{ROLLOUT}.max_model_len": "memory; less than an episode needs is refused by `recipe_checks`",
    f"{ROLLOUT}.free_cache_engine": "speed and memory",
    f"{ROLLOUT}.enforce_eager": "speed and memory",
    "transfer_queue.backend.SimpleStorage.num_data_storage_units": "speed and memory",
    f"{INIT}.num_cpus": "Ray counts actors",
    f"{INIT}.object_store_memory": "memory",
}
"""Keys that ``compose`` sets and a recipe may change, with what they change."""


def recipe_with(key: str, value: Any, base: Mapping[str, Any] = GPU) -> Recipe:
    return recipes.load(merge(base, {"verl": nested(tuple(key.split(".")), value)}))


def refusal(key: str, value: Any) -> str:
    with pytest.raises(RecipeError) as caught:
        framework_of(recipe_with(key, value))
    return caught.value.message


def covered(key: str, patterns: Collection[str]) -> bool:
    parts = key.split(".")
    roots = [".".join(parts[:length]) for length in range(1, len(parts) + 1)]
    return any(fnmatchcase(root, pattern) for root in roots for pattern in patterns)


@pytest.mark.parametrize("base", [CPU, GPU], ids=["cpu", "gpu"])
def test_every_key_that_a_recipe_composes_is_owned_or_known_to_be_free(
    base: dict[str, Any], tmp_path: Path
) -> None:
    composed = dict(map_values(nest(own_keys(recipes.load(base), tmp_path))))
    keys = [dotted(path) for path in composed]
    assert len(keys) > 60
    assert [key for key in keys if not covered(key, OWNED_KEYS) and not covered(key, FREE)] == []


def test_no_key_is_owned_and_free() -> None:
    assert [key for key in FREE if covered(key, OWNED_KEYS) and key.count("*") == 0] == []


def test_every_owned_or_free_key_is_one_of_verl_or_ray() -> None:
    known = {dotted(path) for strategy in Strategy for path in schema._known_keys(strategy)}
    for base in (CPU, GPU):
        known |= {dotted(path) for path, _ in map_values(nest(own_keys(recipes.load(base), Path())))}
    for key in [*OWNED_KEYS, *FREE, *RAW_NAMES]:
        if not key.startswith("ray_kwargs.ray_init"):
            assert any(fnmatchcase(name, key) or name.startswith(f"{key}.") for name in known), key


def test_each_key_that_supervised_training_composes_is_owned_or_free_and_owned_ones_exist() -> None:
    defaults = schema.default_config(Method.sft)
    recipe = recipes.load("quickstart-sft")
    free = {moved for key in FREE if (moved := sft_key(key.removesuffix(".*")))}
    owned = {moved for key in OWNED_KEYS if (moved := sft_key(key))} | SFT_OWNED.keys()
    composed = [dotted(path) for path, _ in map_values(nest(sft_keys(recipe, Path("runs/x"), defaults)))]
    assert [key for key in composed if not covered(key, owned) and not covered(key, free)] == []
    known = {dotted(path) for path in schema._known_keys(Method.sft)}
    assert [key for key in SFT_OWNED if key not in known] == []
    roots = [
        moved for moved in SFT_KEYS.values() if not any(f"{key}.".startswith(f"{moved}.") for key in known)
    ]
    assert roots == []


def test_every_key_that_a_refusal_names_is_one_of_the_recipe() -> None:
    tree = plain_dict(Recipe())
    missing = [own for own in SAME_MEANING.values() if not has(tree, own)]
    assert missing == []


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("trainer.logger", "console", "the recipe has a key for it, `trainer.loggers`"),
        ("trainer.logger", ["console"], "the recipe has a key for it, `trainer.loggers`"),
        ("trainer.default_local_dir", "/tmp/x", "it lies in the run folder"),
        ("trainer.save_freq", -1, "`trainer.save_every`"),
        ("trainer.total_training_steps", 3, "`trainer.steps`"),
        ("trainer.total_epochs", 1, "`trainer.epochs`"),
        ("trainer.resume_mode", "disable", "`train --resume`"),
        ("trainer.val_only", True, "`aworld-train eval`"),
        ("trainer.use_v1", False, "the older trainer plays no episodes"),
        ("trainer.nnodes", 2, "`cluster.nodes`"),
        ("trainer.n_gpus_per_node", 2, "`cluster.gpus_per_node`"),
        ("trainer.v1.trainer_mode", "colocate_async", "`trainer.mode`"),
        ("trainer.v1.sampler.max_off_policy_threshold", 2, "`trainer.async.staleness`"),
        ("actor_rollout_ref.actor.use_prefix_grouper", True, "`trainer.shared_prefix`"),
        ("actor_rollout_ref.actor.policy_loss.loss_mode", "gspo", "`algorithm.loss`"),
        ("algorithm.filter_groups.enable", True, "`rollout.equal_group`"),
        (f"{ROLLOUT}.agent.agent_loop_config_path", "a.yaml", "`agent` section"),
        (f"{ROLLOUT}.agent.agent_loop_manager_class", "mine.Manager", "`agent` section"),
        (f"{ROLLOUT}.agent.default_agent_loop", "tool_agent", "`agent.loop`"),
        (f"{ROLLOUT}.n", 2, "`rollout.n`"),
        (f"{ROLLOUT}.name", "sglang", "`rollout.engine`"),
        (f"{ROLLOUT}.tensor_model_parallel_size", 2, "`rollout.tensor_parallel`"),
        (f"{ROLLOUT}.val_kwargs.n", 4, "cannot be set"),
        (f"{ROLLOUT}.repetition_penalty", 1.1, "computes probabilities without it"),
        ("reward.custom_reward_function.path", "r.py", "`reward.function`"),
        ("reward.reward_manager.name", "dapo", "`reward` section"),
        ("data.train_batch_size", 8, "`trainer.batch_size`"),
        ("actor_rollout_ref.actor.checkpoint.save_contents", ["model"], "a run is resumed"),
        ("ray_kwargs.ray_init.address", "auto", "`cluster.launcher`"),
        ("ray_kwargs.ray_init.dashboard_host", "0.0.0.0", "only its user can reach"),
        ("trainer", None, "cannot be set as a whole"),
        (f"{ROLLOUT}.agent", None, "`agent` section"),
    ],
)
def test_a_key_that_a_run_relies_on_is_refused_with_its_own_key_or_the_reason(
    key: str, value: Any, sentence: str
) -> None:
    message = refusal(key, value)
    assert message.startswith(f"verl.{key} cannot be set")
    assert sentence in message


def test_all_owned_keys_of_a_recipe_are_named_at_once() -> None:
    raw = {"trainer": {"logger": "console", "save_freq": -1, "balance_batch": False}}
    faults = dict(recipe_faults(recipes.load({**GPU, "verl": raw})))
    assert sorted(faults) == [("verl", "trainer", "logger"), ("verl", "trainer", "save_freq")]


def test_a_configuration_of_verl_keeps_its_loggers() -> None:
    from aworld_train.adapter.verl.recipe_keys import recipe_from

    content = {"data": {"seed": 1}, "trainer": {"logger": ["console", "wandb"]}}
    assert recipe_from(content) == {"trainer": {"seed": 1, "loggers": ["wandb"]}}


# Every leaf of VeRL's configuration, changed once


@pytest.fixture(scope="module")
def free_leaves() -> dict[KeyPath, Any]:
    """The leaves of VeRL's defaults, with another value, that a recipe for a GPU may set."""
    defaults = schema.resolve(
        merge(schema.default_config(), nested(tuple(f"{ROLLOUT}.name".split(".")), "vllm"))
    )
    changed = {
        path: other(path, value)
        for path, value in map_values(defaults)
        if path[-1] != "_target_" and path[0] not in IGNORED_SECTIONS
    }
    assert len(changed) > 500
    free, recipe, framework = {}, recipes.load(GPU), VerlFramework()
    for path, value in changed.items():
        changed_recipe = replace(recipe, raw=nested(path, value))
        faults = [*owned_faults("verl", OWNED_KEYS, changed_recipe.raw), *framework.faults(changed_recipe)]
        for _, sentence in faults:
            assert dotted(path) in sentence
        if not faults:
            free[path] = value
    return free


def test_most_keys_stay_free(free_leaves: dict[KeyPath, Any]) -> None:
    keys = {dotted(path) for path in free_leaves}
    assert len(keys) > 300
    assert {
        "actor_rollout_ref.actor.ppo_epochs",
        "actor_rollout_ref.actor.fsdp_config.param_offload",
        f"{ROLLOUT}.max_num_batched_tokens",
        "trainer.balance_batch",
        "algorithm.gamma",
    } <= keys


def test_whatever_free_key_is_changed_a_run_keeps_what_it_relies_on(
    free_leaves: dict[KeyPath, Any], tmp_path: Path
) -> None:
    recipe = recipes.load(GPU)
    assert dict(broken(compose(recipe, tmp_path), recipe, tmp_path)) == {}
    raw: dict[str, Any] = {}
    for path, value in free_leaves.items():
        raw = merge(raw, nested(path, value))
    changed = recipes.load({**GPU, "verl": raw})
    composed = compose(changed, tmp_path)
    assert value_at(composed, "trainer.balance_batch") is False
    assert dict(broken(composed, changed, tmp_path)) == {}


def broken(config: Mapping[str, Any], recipe: Recipe, folder: Path) -> Iterator[tuple[str, Any]]:
    """What the summary, metrics, records, rewards and sizes of a run need, and a configuration does not have."""
    actor, tasks = "actor_rollout_ref.actor", recipe.trainer.batch_size
    expected = {
        # The summary and supervision count steps, validations and checkpoints.
        "trainer.total_training_steps": recipe.trainer.steps,
        "trainer.save_freq": recipe.trainer.save_every,
        "trainer.test_freq": recipe.trainer.val_every,
        "trainer.val_before_train": True,
        "trainer.val_only": False,
        "trainer.resume_mode": "auto",
        "trainer.resume_from_path": None,
        "trainer.use_v1": True,
        "trainer.v1.trainer_mode": TRAINERS[Mode.sync],
        "trainer.default_local_dir": str(folder / "checkpoints"),
        "trainer.default_hdfs_dir": None,
        "trainer.del_local_ckpt_after_load": False,
        "trainer.critic_warmup": 0,
        "trainer.validation_data_dir": str(folder / "traces" / "validation"),
        f"{actor}.checkpoint.save_contents": ["model", "optimizer", "extra", "hf_model"],
        f"{actor}.checkpoint.async_save": False,
        f"{actor}.fsdp_config.forward_only": False,
        # metrics.jsonl is made from VeRL's file logger.
        "trainer.logger": ["console", "file"],
        # Episodes are played and recorded by the package's own loop, one for each task of a validation.
        f"{ROLLOUT}.agent.agent_loop_manager_class": "aworld_train.adapter.verl.worker.EpisodeManager",
        f"{ROLLOUT}.agent.agent_loop_config_path": str(folder / "agent.yaml"),
        f"{ROLLOUT}.val_kwargs.n": 1,
        f"{ROLLOUT}.calculate_log_probs": True,
        f"{ROLLOUT}.ignore_eos": False,
        "data.val_batch_size": None,
        "data.filter_overlong_prompts": False,
        "data.prompt_key": "prompt",
        "data.return_raw_chat": True,
        "trainer.v1.sampler.custom_sampler.name": "GroupSampler",
        "skip.rollout.enable": False,
        "skip.rollout_tq.enable": False,
        "skip.async_rollout.enable": False,
        # Scores are the recipe's.
        "reward.custom_reward_function.path": "pkg://aworld_train.adapter.verl.reward",
        "reward.custom_reward_function.name": "score",
        "reward.reward_manager.name": "naive",
        "reward.reward_model.enable": False,
        "reward.num_workers": 1,
        # Sizes are the recipe's.
        "data.train_batch_size": tasks,
        "data.max_prompt_length": recipe.dataset.max_prompt_tokens,
        "data.max_response_length": recipe.rollout.max_response_tokens,
        f"{ROLLOUT}.prompt_length": recipe.dataset.max_prompt_tokens,
        f"{ROLLOUT}.response_length": recipe.rollout.max_response_tokens,
        f"{ROLLOUT}.n": recipe.rollout.n,
        f"{actor}.rollout_n": recipe.rollout.n,
        f"{actor}.ppo_mini_batch_size": tasks,
        f"{actor}.ppo_micro_batch_size": None,
        f"{actor}.ppo_micro_batch_size_per_gpu": recipe.trainer.microbatch_size,
        "trainer.nnodes": recipe.cluster.nodes,
        "trainer.n_gpus_per_node": recipe.cluster.gpus_per_node,
        f"{ROLLOUT}.nnodes": 0,
        # The model is the recipe's, as the checks before a run read it.
        "actor_rollout_ref.model.path": recipe.model.path,
        "actor_rollout_ref.model.tokenizer_path": None,
        "actor_rollout_ref.model.custom_chat_template": None,
        "actor_rollout_ref.model.trust_remote_code": False,
        # Nothing opens a port of its own.
        "ray_kwargs.ray_init.address": "local",
        "ray_kwargs.ray_init.include_dashboard": False,
        f"{ROLLOUT}.prometheus.enable": False,
        "transfer_queue.metrics.enabled": False,
        "transfer_queue.backend.storage_backend": "SimpleStorage",
    }
    for key, value in expected.items():
        if value_at(config, key) != value:
            yield key, value_at(config, key)


def other(path: KeyPath, value: Any) -> Any:
    """Another value of the right type; of a name that is checked, another valid one."""
    if dotted(path) in RAW_NAMES:
        names = sorted(
            RAW_NAMES[dotted(path)][1]() - {value, "bypass_mode"}
        )  # the loss of rows, which is refused
        return names[0]
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 2
    if isinstance(value, list):
        return [*value, 1] if value and isinstance(value[0], int | float) else [*value, "more"]
    if isinstance(value, str):
        return f"{value}x"
    if value == {}:
        return {"more": 1} if accepted(path, {"more": 1}) else {}
    return next(candidate for candidate in CANDIDATES if accepted(path, candidate))


def accepted(path: KeyPath, value: Any) -> bool:
    """Whether VeRL takes a value of this type."""
    part = nested(path, value)
    try:
        schema.check(merge(schema.default_config(), part), part)
    except RecipeError:
        return False
    return True


def nest(keys: Mapping[str, Any]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for key, value in keys.items():
        tree = merge(tree, nested(tuple(key.split(".")), value))
    return tree


def has(tree: Any, key: str) -> bool:
    for part in key.split("."):
        if not isinstance(tree, Mapping) or part not in tree:
            return False
        tree = tree[part]
    return True
