"""VeRL's keys by the recipe's: composing, reading VeRL's own files and refusing raw keys all go by this table."""

from collections.abc import Mapping
from typing import Any

from aworld_train.adapter.verl.name_checks import value_at
from aworld_train.recipe.tree import map_values, put

MODEL, ACTOR, REF = "actor_rollout_ref.model", "actor_rollout_ref.actor", "actor_rollout_ref.ref"
ROLLOUT = "actor_rollout_ref.rollout"

COPIED = {
    "trainer.experiment_name": "name",
    f"{MODEL}.trust_remote_code": "model.trust_remote_code",
    f"{MODEL}.lora_rank": "model.lora.rank",
    f"{MODEL}.lora_alpha": "model.lora.alpha",
    f"{MODEL}.target_modules": "model.lora.target_modules",
    "data.val_max_samples": "dataset.val_limit",
    "data.max_prompt_length": "dataset.max_prompt_tokens",
    "data.max_response_length": "rollout.max_response_tokens",
    "data.train_batch_size": "trainer.batch_size",
    "data.shuffle": "dataset.shuffle",
    "data.seed": "trainer.seed",
    f"{ACTOR}.optim.lr": "trainer.lr",
    f"{ACTOR}.optim.lr_warmup_steps": "trainer.warmup_steps",
    f"{ACTOR}.optim.weight_decay": "trainer.weight_decay",
    f"{ACTOR}.ppo_micro_batch_size_per_gpu": "trainer.microbatch_size",
    f"{ACTOR}.entropy_coeff": "algorithm.entropy_coef",
    f"{ACTOR}.policy_loss.loss_mode": "algorithm.loss",
    f"{ACTOR}.loss_agg_mode": "algorithm.loss_aggregation",
    f"{ACTOR}.clip_ratio_low": "algorithm.clip_low",
    f"{ACTOR}.clip_ratio_high": "algorithm.clip_high",
    f"{ACTOR}.clip_ratio_c": "algorithm.clip_c",
    f"{ACTOR}.use_dynamic_bsz": "trainer.dynamic_batches",
    "algorithm.adv_estimator": "algorithm.name",
    "algorithm.norm_adv_by_std_in_grpo": "algorithm.normalize_by_std",
    f"{ROLLOUT}.name": "rollout.engine",
    f"{ROLLOUT}.n": "rollout.n",
    f"{ROLLOUT}.temperature": "rollout.temperature",
    f"{ROLLOUT}.top_p": "rollout.top_p",
    f"{ROLLOUT}.top_k": "rollout.top_k",
    f"{ROLLOUT}.max_num_seqs": "rollout.max_running",
    f"{ROLLOUT}.gpu_memory_utilization": "rollout.gpu_memory",
    f"{ROLLOUT}.agent.num_workers": "rollout.agent_workers",
    f"{ROLLOUT}.multi_turn.max_assistant_turns": "agent.max_turns",
    f"{ROLLOUT}.tensor_model_parallel_size": "rollout.tensor_parallel",
    f"{ROLLOUT}.val_kwargs.n": "rollout.val_n",
    f"{ROLLOUT}.val_kwargs.temperature": "rollout.val_temperature",
    f"{ROLLOUT}.val_kwargs.top_p": "rollout.val_top_p",
    "trainer.n_gpus_per_node": "cluster.gpus_per_node",
    "trainer.nnodes": "cluster.nodes",
    "trainer.project_name": "trainer.project",
    "trainer.log_val_generations": "trainer.log_val_generations",
    "trainer.test_freq": "trainer.val_every",
    "trainer.save_freq": "trainer.save_every",
    "trainer.max_actor_ckpt_to_keep": "trainer.keep_checkpoints",
}
"""Set to the recipe's value, and read from a file of VeRL's own."""

FSDP_COPIED = {
    f"{ACTOR}.grad_clip": "trainer.grad_clip",
    f"{ACTOR}.ulysses_sequence_parallel_size": "trainer.sequence_parallel",
}
MEGATRON_COPIED = {
    f"{ACTOR}.megatron.tensor_model_parallel_size": "trainer.megatron.tensor_parallel",
    f"{ACTOR}.megatron.pipeline_model_parallel_size": "trainer.megatron.pipeline_parallel",
    f"{ACTOR}.megatron.context_parallel_size": "trainer.megatron.context_parallel",
    f"{ACTOR}.megatron.expert_model_parallel_size": "trainer.megatron.expert_parallel",
}
"""As ``COPIED``, with one value of ``trainer.strategy``."""

COPIED_AGAIN = {
    "data.trust_remote_code": "model.trust_remote_code",
    f"{ACTOR}.optim.clip_grad": "trainer.grad_clip",
    f"{ACTOR}.clip_ratio": "algorithm.clip_low",
    f"{ACTOR}.kl_loss_coef": "algorithm.kl_coef",
    f"{ACTOR}.data_loader_seed": "trainer.seed",
    f"{REF}.log_prob_micro_batch_size_per_gpu": "trainer.microbatch_size",
    f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu": "trainer.microbatch_size",
    f"{ROLLOUT}.seed": "trainer.seed",
    f"{ROLLOUT}.multi_turn.max_user_turns": "agent.max_turns",
    "algorithm.kl_ctrl.kl_coef": "algorithm.kl_reward_coef",
    "trainer.max_critic_ckpt_to_keep": "trainer.keep_checkpoints",
}
"""Set to the recipe's value, and not read from a file of VeRL's own."""

COMPUTED = {
    f"{MODEL}.path": "model.path",
    "data.train_files": "dataset.train",
    "data.val_files": "dataset.val",
    f"{ACTOR}.ppo_mini_batch_size": "trainer.minibatch_size",
    f"{ACTOR}.strategy": "trainer.strategy",
    "algorithm.rollout_correction.rollout_is": "algorithm.rollout_correction",
    f"{ROLLOUT}.dtype": "rollout.dtype",
    "trainer.total_epochs": "trainer.epochs",
    "trainer.total_training_steps": "trainer.steps",
}
"""Read from a file of VeRL's own; ``compose`` computes the values that it sets."""

READ = {**COPIED, **FSDP_COPIED, **MEGATRON_COPIED, **COMPUTED}

SAME_MEANING = {
    f"{MODEL}.lora.rank": "model.lora.rank",
    f"{MODEL}.lora.alpha": "model.lora.alpha",
    f"{MODEL}.lora.target_modules": "model.lora.target_modules",
    f"{MODEL}.override_config.attn_implementation": "model.attention",
    f"{ACTOR}.use_prefix_grouper": "trainer.shared_prefix",
    f"{ACTOR}.rollout_n": "rollout.n",
    f"{REF}.rollout_n": "rollout.n",
    "critic.rollout_n": "rollout.n",
    f"{ACTOR}.ppo_micro_batch_size": "trainer.microbatch_size",
    f"{ACTOR}.use_kl_loss": "algorithm.kl_coef",
    f"{ACTOR}.fsdp_config.seed": "trainer.seed",
    f"{ACTOR}.megatron.seed": "trainer.seed",
    f"{REF}.strategy": "trainer.strategy",
    f"{REF}.log_prob_micro_batch_size": "trainer.microbatch_size",
    f"{ROLLOUT}.log_prob_micro_batch_size": "trainer.microbatch_size",
    f"{ROLLOUT}.prompt_length": "dataset.max_prompt_tokens",
    f"{ROLLOUT}.response_length": "rollout.max_response_tokens",
    f"{ROLLOUT}.nnodes": "cluster.nodes",
    f"{ROLLOUT}.n_gpus_per_node": "rollout.samplers",
    f"{ROLLOUT}.do_sample": "rollout.temperature",
    f"{ROLLOUT}.agent.default_agent_loop": "agent.loop",
    f"{ROLLOUT}.multi_turn.format": "agent.tool_parser",
    f"{ROLLOUT}.multi_turn.max_tool_response_length": "agent.max_tool_result_chars",
    "algorithm.use_kl_in_reward": "algorithm.kl_reward_coef",
    "algorithm.filter_groups": "rollout.equal_group",
    "reward.custom_reward_function": "reward.function",
    "trainer.logger": "trainer.loggers",
    "trainer.device": "cluster.device",
    "trainer.remove_previous_ckpt_in_save": "trainer.keep_checkpoints",
    "trainer.val_before_train": "trainer.val_ends",
    "trainer.v1.trainer_mode": "trainer.mode",
    "actor_rollout_ref.hybrid_engine": "trainer.mode",
    "trainer.v1.colocate_async.num_warmup_batches": "trainer.async.warmup_batches",
    "trainer.v1.separate_async.num_warmup_batches": "trainer.async.warmup_batches",
    "trainer.v1.separate_async.parameter_sync_step": "trainer.async.sync_every",
    "trainer.v1.sampler.max_off_policy_threshold": "trainer.async.staleness",
    "trainer.v1.sampler.sync_refill_failed_groups": "rollout.small_group",
    "trainer.v1.sampler.sampler_kwargs": "rollout.min_group",
    **READ,
    **COPIED_AGAIN,
}
"""VeRL's key, or the root of several, and the recipe's key to set in its place."""


SFT_KEYS = {
    MODEL: "model",
    f"{ACTOR}.fsdp_config": "engine",
    f"{ACTOR}.optim": "optim",
    f"{ACTOR}.checkpoint": "checkpoint",
    f"{ACTOR}.strategy": "engine.strategy",
    f"{ACTOR}.ulysses_sequence_parallel_size": "engine.ulysses_sequence_parallel_size",
    "trainer.max_actor_ckpt_to_keep": "trainer.max_ckpt_to_keep",
    "data": "data",
    "trainer": "trainer",
}
"""Keys of VeRL's RL trainer, or roots of several, and what its SFT trainer calls them, where it has them."""


def sft_key(key: str) -> str | None:
    """What the SFT trainer calls a key of the RL trainer; None if its configuration has no such place."""
    for root, moved in sorted(SFT_KEYS.items(), key=lambda item: -len(item[0])):
        if key == root or key.startswith(f"{root}."):
            return moved + key.removeprefix(root)
    return None


_SECTIONS = {"actor_rollout_ref", "critic", "data", "custom_reward_function", "reward_model"}
"""Sections that VeRL's configuration has and no recipe; any of them shows whose file it is."""
_HYDRA = {"defaults", "hydra"}
ALWAYS_LOGGED = ("console", "file")
"""Loggers of every run: its log, and the file that its metrics are read from."""


def recipe_from(content: Mapping[str, Any]) -> dict[str, Any] | None:
    if not _SECTIONS & set(content):
        return None
    recipe: dict[str, Any] = {}
    own = {key: value for key, value in content.items() if key not in _HYDRA}
    for path, value in map_values(own):
        if value in (None, "", [], {}):
            continue
        key = ".".join(path)
        if key == "trainer.total_epochs" and value_at(own, "trainer.total_training_steps") is not None:
            continue  # VeRL trains the steps if it is given both
        if key == "trainer.logger":
            names = value if isinstance(value, list) else [value]
            value = [name for name in names if name not in ALWAYS_LOGGED]
            put(recipe, ("trainer", "loggers"), value)
            continue
        moved = READ.get(key)
        put(recipe, tuple(moved.split(".")) if moved else ("verl", *path), value)
    return recipe
