"""One recipe says everything that the launch script of AWorld's GAIA example for VeRL says, key by key."""

from pathlib import Path
from typing import Any

import pytest

from aworld_train import recipe as recipes
from aworld_train.adapter.verl import schema
from aworld_train.adapter.verl.compose import compose
from aworld_train.adapter.verl.framework import VerlFramework
from aworld_train.adapter.verl.recipe_keys import recipe_from
from aworld_train.recipe.tree import merge, nested

# The script has one episode per task, a prompt without room for the schemas of tools, few turns, and all weights; the
# ready recipe has more of these, and adapters.
AS_IN_THE_SCRIPT = [
    "name=qwe3",
    "dataset.train=[train.parquet]",
    "dataset.val=[test.parquet]",
    "dataset.max_prompt_tokens=1024",
    "rollout.max_response_tokens=2048",
    "trainer.max_batch_tokens=null",
    "model.lora.rank=0",
    "trainer.lr=1.0e-6",
    "trainer.offload=all",
    "rollout.gpu_memory=0.75",
    "agent.max_turns=8",
    "agent.context.policy=off",
]
ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
SETTINGS = {
    "algorithm.adv_estimator": "grpo",
    "algorithm.use_kl_in_reward": False,
    "algorithm.kl_ctrl.kl_coef": 0.0,
    "data.train_files": ["train.parquet"],
    "data.val_files": ["test.parquet"],
    "data.return_raw_chat": True,
    "data.train_batch_size": 1,
    "data.max_prompt_length": 1024,
    "data.max_response_length": 2048,
    "data.truncation": "error",
    "actor_rollout_ref.model.path": "Qwen/Qwen3-4B",
    "actor_rollout_ref.model.use_remove_padding": True,
    "actor_rollout_ref.model.enable_gradient_checkpointing": True,
    f"{ACTOR}.use_kl_loss": False,
    f"{ACTOR}.kl_loss_coef": 0.0,
    f"{ACTOR}.clip_ratio_low": 0.2,
    f"{ACTOR}.clip_ratio_high": 0.28,
    f"{ACTOR}.clip_ratio_c": 10.0,
    f"{ACTOR}.optim.lr": 1e-6,
    f"{ACTOR}.use_dynamic_bsz": True,
    f"{ACTOR}.ppo_mini_batch_size": 1,
    f"{ACTOR}.ppo_max_token_len_per_gpu": 12288,
    f"{ACTOR}.ulysses_sequence_parallel_size": 1,
    f"{ACTOR}.fsdp_config.param_offload": True,
    f"{ACTOR}.fsdp_config.optimizer_offload": True,
    "actor_rollout_ref.ref.log_prob_max_token_len_per_gpu": 24576,
    f"{ROLLOUT}.name": "vllm",
    f"{ROLLOUT}.mode": "async",
    f"{ROLLOUT}.tensor_model_parallel_size": 1,
    f"{ROLLOUT}.multi_turn.max_user_turns": 8,
    f"{ROLLOUT}.multi_turn.max_assistant_turns": 8,
    f"{ROLLOUT}.multi_turn.format": "hermes",
    f"{ROLLOUT}.gpu_memory_utilization": 0.75,
    f"{ROLLOUT}.val_kwargs.top_p": 0.6,
    f"{ROLLOUT}.val_kwargs.temperature": 1.0,
    f"{ROLLOUT}.val_kwargs.n": 1,
    "trainer.project_name": "gaia",
    "trainer.experiment_name": "qwe3",
    "trainer.n_gpus_per_node": 1,
    "trainer.nnodes": 1,
    "trainer.val_before_train": True,
    "trainer.log_val_generations": 50,
    "trainer.test_freq": 5,
    "trainer.total_epochs": 1,
    "trainer.total_training_steps": None,
}
OTHERWISE = {
    f"{ROLLOUT}.n": "GRPO of one episode has no baseline; such a recipe is refused",
    "data.filter_overlong_prompts": "the filter knows neither tools nor system prompt; a prompt too long is an error",
    f"{ROLLOUT}.agent.agent_loop_config_path": "a file of the run folder",
    f"{ROLLOUT}.multi_turn.tool_config_path": "tool calls are read without a dummy tool",
    "custom_reward_function.path": "the scorer `gaia` of the tasks",
    "custom_reward_function.name": "the scorer `gaia` of the tasks",
    "trainer.logger": "the console and the file that the metrics of a run are read from",
    "trainer.save_freq": "a run keeps at least its last checkpoint",
    "trainer.default_local_dir": "the run folder",
}
"""What the script sets and a recipe does not say, with the reason."""
VARIABLES = {
    "NCCL_IBEXT_DISABLE": "1",
    "NCCL_NVLS_ENABLE": "1",
    "NCCL_IB_HCA": "mlx5",
    "UCX_NET_DEVICES": ",".join(f"mlx5_{port}:1" for port in range(8)),
    "VLLM_USE_V1": "1",
    "VLLM_ATTENTION_BACKEND": "FLASH_ATTN",
}


@pytest.fixture(scope="module")
def composed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    variables = [f"cluster.environment.{name}='{value}'" for name, value in VARIABLES.items()]
    loaded = recipes.load("gaia/qwen3-4b-1gpu", [*AS_IN_THE_SCRIPT, *variables])
    return compose(loaded, tmp_path_factory.mktemp("run"))


def leaf(config: dict[str, Any], key: str) -> Any:
    value: Any = config
    for part in key.split("."):
        value = value[part]
    return value


@pytest.mark.parametrize(("key", "value"), SETTINGS.items())
def test_the_recipe_composes_to_what_the_script_sets(
    composed: dict[str, Any], key: str, value: object
) -> None:
    assert leaf(composed, key) == value


@pytest.mark.parametrize("key", OTHERWISE)
def test_what_a_recipe_does_otherwise_is_a_key_of_verl_all_the_same(key: str) -> None:
    leaf(schema.default_config(), key)


def test_the_variables_of_the_script_reach_the_processes_of_all_machines(composed: dict[str, Any]) -> None:
    assert leaf(composed, "ray_kwargs.ray_init.runtime_env.env_vars") == VARIABLES


def test_the_script_s_own_configuration_becomes_the_recipe_s_keys() -> None:
    keys = [key for key in SETTINGS if key not in ("trainer.total_training_steps", "data.return_raw_chat")]
    own: dict[str, Any] = {}
    for key in keys:
        own = merge(own, nested(tuple(key.split(".")), SETTINGS[key]))
    moved = recipe_from(own)
    assert moved is not None
    loaded = recipes.load(moved, ["rollout.n=2"])
    assert (loaded.algorithm.clip_low, loaded.algorithm.clip_high, loaded.algorithm.clip_c) == (0.2, 0.28, 10)
    assert (loaded.trainer.epochs, loaded.trainer.project, loaded.trainer.log_val_generations) == (
        1,
        "gaia",
        50,
    )
    assert (loaded.rollout.val_n, loaded.rollout.val_top_p, loaded.rollout.val_temperature) == (1, 0.6, 1.0)
    assert loaded.dataset.train_files == ["train.parquet"]
    assert VerlFramework().recipe_from(own) == moved


def test_steps_count_before_epochs_in_a_configuration_of_verl_s_own() -> None:
    own = {"data": {"train_batch_size": 4}, "trainer": {"total_epochs": 30, "total_training_steps": 7}}
    moved = recipe_from(own)
    assert moved is not None and moved["trainer"] == {"batch_size": 4, "steps": 7}


def test_a_model_with_lora_or_kl_in_the_reward_is_composed_so(tmp_path: Path) -> None:
    loaded = recipes.load("gsm8k-qwen2.5-1.5b-1gpu", ["algorithm.kl_reward_coef=0.01"])
    config = compose(loaded, tmp_path)
    assert leaf(config, "actor_rollout_ref.model.lora_rank") == 32
    assert leaf(config, "algorithm.use_kl_in_reward") is True
    assert leaf(config, "algorithm.kl_ctrl.kl_coef") == 0.01


def test_a_local_model_comes_before_its_name_on_the_hub(tmp_path: Path) -> None:
    model = {"model": {"path": str(tmp_path / "model"), "hub": "org/model"}}
    assert recipes.load(model).model.location == "org/model"
    (tmp_path / "model").mkdir()
    assert recipes.load(model).model.location == str(tmp_path / "model")
