"""A configuration file of VeRL itself as a recipe: keys that a recipe has are moved there, the others stay raw."""

from collections.abc import Mapping
from typing import Any

from aworld_train.recipe.tree import map_values

_SECTIONS = {"actor_rollout_ref", "critic", "data", "custom_reward_function", "reward_model"}
"""Sections that VeRL's configuration has and no recipe; any of them shows whose file it is."""
_HYDRA = {"defaults", "hydra"}
_MODEL, _ACTOR, _ROLLOUT = "actor_rollout_ref.model", "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
RECIPE_KEYS = {
    "trainer.experiment_name": "name",
    f"{_MODEL}.path": "model.path",
    f"{_MODEL}.trust_remote_code": "model.trust_remote_code",
    f"{_MODEL}.lora_rank": "model.lora.rank",
    f"{_MODEL}.lora_alpha": "model.lora.alpha",
    f"{_MODEL}.target_modules": "model.lora.target_modules",
    "data.train_files": "dataset.train",
    "data.val_files": "dataset.val",
    "data.val_max_samples": "dataset.val_limit",
    "data.max_prompt_length": "dataset.max_prompt_tokens",
    "data.max_response_length": "rollout.max_response_tokens",
    "data.train_batch_size": "trainer.batch_size",
    "data.shuffle": "dataset.shuffle",
    "data.seed": "trainer.seed",
    f"{_ACTOR}.optim.lr": "trainer.lr",
    f"{_ACTOR}.optim.lr_warmup_steps": "trainer.warmup_steps",
    f"{_ACTOR}.optim.weight_decay": "trainer.weight_decay",
    f"{_ACTOR}.grad_clip": "trainer.grad_clip",
    f"{_ACTOR}.ppo_mini_batch_size": "trainer.minibatch_size",
    f"{_ACTOR}.ppo_micro_batch_size_per_gpu": "trainer.microbatch_size",
    f"{_ACTOR}.entropy_coeff": "algorithm.entropy_coef",
    f"{_ACTOR}.loss_agg_mode": "algorithm.loss_aggregation",
    "algorithm.adv_estimator": "algorithm.name",
    "algorithm.norm_adv_by_std_in_grpo": "algorithm.normalize_by_std",
    "algorithm.rollout_correction.rollout_is": "algorithm.rollout_correction",
    f"{_ROLLOUT}.name": "rollout.engine",
    f"{_ROLLOUT}.n": "rollout.n",
    f"{_ROLLOUT}.temperature": "rollout.temperature",
    f"{_ROLLOUT}.top_p": "rollout.top_p",
    f"{_ROLLOUT}.top_k": "rollout.top_k",
    f"{_ROLLOUT}.max_num_seqs": "rollout.max_running",
    f"{_ROLLOUT}.gpu_memory_utilization": "rollout.gpu_memory",
    f"{_ROLLOUT}.dtype": "rollout.dtype",
    f"{_ROLLOUT}.agent.num_workers": "rollout.agent_workers",
    f"{_ROLLOUT}.multi_turn.max_assistant_turns": "agent.max_turns",
    "trainer.n_gpus_per_node": "cluster.gpus_per_node",
    "trainer.nnodes": "cluster.nodes",
    "trainer.project_name": "trainer.project",
    "trainer.total_epochs": "trainer.epochs",
    "trainer.log_val_generations": "trainer.log_val_generations",
    f"{_ACTOR}.clip_ratio_low": "algorithm.clip_low",
    f"{_ACTOR}.clip_ratio_high": "algorithm.clip_high",
    f"{_ACTOR}.clip_ratio_c": "algorithm.clip_c",
    f"{_ACTOR}.use_dynamic_bsz": "trainer.dynamic_batches",
    f"{_ACTOR}.strategy": "trainer.strategy",
    f"{_ACTOR}.megatron.tensor_model_parallel_size": "trainer.megatron.tensor_parallel",
    f"{_ACTOR}.megatron.pipeline_model_parallel_size": "trainer.megatron.pipeline_parallel",
    f"{_ACTOR}.megatron.context_parallel_size": "trainer.megatron.context_parallel",
    f"{_ACTOR}.megatron.expert_model_parallel_size": "trainer.megatron.expert_parallel",
    f"{_ACTOR}.ulysses_sequence_parallel_size": "trainer.sequence_parallel",
    f"{_ROLLOUT}.tensor_model_parallel_size": "rollout.tensor_parallel",
    f"{_ROLLOUT}.val_kwargs.n": "rollout.val_n",
    f"{_ROLLOUT}.val_kwargs.temperature": "rollout.val_temperature",
    f"{_ROLLOUT}.val_kwargs.top_p": "rollout.val_top_p",
    "trainer.total_training_steps": "trainer.steps",
    "trainer.test_freq": "trainer.val_every",
    "trainer.save_freq": "trainer.save_every",
    "trainer.max_actor_ckpt_to_keep": "trainer.keep_checkpoints",
}
"""VeRL's key and the recipe's, for values that are the same in both."""
ALWAYS_LOGGED = ("console", "file")
"""Loggers of every run: its log, and the file that its metrics are read from."""


def recipe_from(content: Mapping[str, Any]) -> dict[str, Any] | None:
    """A configuration of VeRL as the mapping of a recipe; None if it is none.

    Empty values are left out: such a file has them for the trainer to fill in.
    """
    if not _SECTIONS & set(content):
        return None
    recipe: dict[str, Any] = {}
    own = {key: value for key, value in content.items() if key not in _HYDRA}
    for path, value in map_values(own):
        if value in (None, "", [], {}):
            continue
        key = ".".join(path)
        if key == "trainer.total_epochs" and _steps(own) is not None:
            continue  # VeRL trains the steps if it is given both
        if key == "trainer.logger":
            names = value if isinstance(value, list) else [value]
            value = [name for name in names if name not in ALWAYS_LOGGED]
            _set(recipe, ("trainer", "loggers"), value)
            continue
        moved = RECIPE_KEYS.get(key)
        _set(recipe, tuple(moved.split(".")) if moved else ("verl", *path), value)
    return recipe


def _steps(config: Mapping[str, Any]) -> Any:
    trainer = config.get("trainer")
    return trainer.get("total_training_steps") if isinstance(trainer, Mapping) else None


def _set(tree: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    for key in path[:-1]:
        tree = tree.setdefault(key, {})
    tree[path[-1]] = value
