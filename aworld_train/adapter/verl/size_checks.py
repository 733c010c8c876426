"""Sizes that VeRL and its engines refuse only after a run has started, each with the place where they do."""

from collections.abc import Iterator

from aworld_train.adapter.verl.name_checks import value_at
from aworld_train.adapter.verl.recipe_keys import ROLLOUT
from aworld_train.recipe.device import on_cpu
from aworld_train.recipe.schema import Engine, LauncherName, Mode, Recipe, RolloutCorrection, Strategy
from aworld_train.recipe.tree import KeyPath

MAX_LORA_RANK = 512
"""Of vLLM, as verl/workers/rollout/vllm_rollout/utils.py has it where vLLM cannot be asked."""
BATCHED_TOKENS = 8192
"""Tokens of one pass of vLLM by VeRL's default, `rollout.max_num_batched_tokens`."""


def size_faults(recipe: Recipe) -> Iterator[tuple[KeyPath, str]]:
    yield from _batch(recipe)
    if recipe.trainer.mode is not Mode.sync:
        yield from _asynchronous(recipe)
    if recipe.rollout.engine is not Engine.transformers:
        yield from _engine_gpus(recipe)
    if recipe.rollout.engine is Engine.vllm:
        yield from _vllm(recipe)
    if not on_cpu(recipe):
        yield from _dynamic(recipe)
        yield from _padding(recipe)


def _batch(recipe: Recipe) -> Iterator[tuple[KeyPath, str]]:
    """verl/utils/config.py, validate_config: it counts every rank, those that share a sequence too."""
    trainer, ranks = recipe.trainer, recipe.cluster.ranks
    episodes = trainer.batch_size * recipe.rollout.n
    shares = max(1, ranks // trainer.ranks_per_batch)
    counts_all = trainer.strategy is Strategy.fsdp2
    if not counts_all or trainer.dynamic_batches or episodes % shares or episodes % ranks == 0:
        return  # `recipe.checks` names a batch that cannot even be shared
    yield (
        ("trainer", "batch_size"),
        f"the {episodes} episodes of one step (`trainer.batch_size` {trainer.batch_size} times `rollout.n` "
        f"{recipe.rollout.n}) must be a multiple of all {ranks} ranks; change one of them, or set "
        "`trainer.dynamic_batches` to true, with which VeRL does not ask for it",
    )


def _engine_gpus(recipe: Recipe) -> Iterator[tuple[KeyPath, str]]:
    parallel, per_node = recipe.rollout.tensor_parallel, recipe.cluster.gpus_per_node
    # verl/workers/rollout/replica.py: an engine has GPUs of one machine, or all GPUs of several.
    if recipe.cluster.ranks % parallel == 0 and max(parallel, per_node) % min(parallel, per_node):
        yield (
            ("rollout", "tensor_parallel"),
            f"`rollout.tensor_parallel` ({parallel}) must divide `cluster.gpus_per_node` ({per_node}) or be a multiple "
            "of it: an engine has some GPUs of one machine, or all GPUs of several",
        )


def _vllm(recipe: Recipe) -> Iterator[tuple[KeyPath, str]]:
    rollout, rank = recipe.rollout, recipe.model.lora.rank
    if rank > MAX_LORA_RANK:
        yield (
            ("model", "lora", "rank"),
            f"`model.lora.rank` is {rank}, and vLLM takes ranks up to {MAX_LORA_RANK}; lower it, or set 0 to train all "
            "weights",
        )
    tokens = value_at(recipe.raw, f"{ROLLOUT}.max_num_batched_tokens")
    tokens = tokens if isinstance(tokens, int) else BATCHED_TOKENS
    if value_at(recipe.raw, f"{ROLLOUT}.enable_chunked_prefill") is False:
        tokens = max(tokens, recipe.max_episode_tokens)  # VeRL raises it
    if rollout.max_running > tokens:  # vllm/config/scheduler.py, verify_max_model_len
        yield (
            ("rollout", "max_running"),
            f"`rollout.max_running` is {rollout.max_running}, and the engine takes {tokens} tokens in one pass, at "
            f"least one for each sequence; lower it, or raise `verl.{ROLLOUT}.max_num_batched_tokens`",
        )


def _dynamic(recipe: Recipe) -> Iterator[tuple[KeyPath, str]]:
    """verl/workers/engine_workers.py compares both, when the workers are built."""
    key = f"{ROLLOUT}.log_prob_use_dynamic_bsz"
    value = value_at(recipe.raw, key)
    if isinstance(value, bool) and value is not recipe.trainer.dynamic_batches:
        yield (
            ("verl", *key.split(".")),
            f"verl.{key} is {str(value).lower()}, and trainer.dynamic_batches "
            f"{str(recipe.trainer.dynamic_batches).lower()}; VeRL has one for both, so leave verl.{key} out.",
        )


def _padding(recipe: Recipe) -> Iterator[tuple[KeyPath, str]]:
    """verl/workers/config/actor.py, FSDPActorConfig.validate."""
    key = "actor_rollout_ref.model.use_remove_padding"
    if recipe.trainer.sequence_parallel > 1 and value_at(recipe.raw, key) is False:
        yield (
            ("verl", *key.split(".")),
            f"verl.{key} is false, and trainer.sequence_parallel ({recipe.trainer.sequence_parallel}) divides "
            f"sequences without padding only. Leave verl.{key} out, or set trainer.sequence_parallel to 1.",
        )


def _asynchronous(recipe: Recipe) -> Iterator[tuple[KeyPath, str]]:
    """verl/trainer/ppo/v1/trainer_separate_async.py compares some of these when the trainer is built."""
    trainer, section = recipe.trainer, recipe.trainer.async_
    mode = f"trainer.mode={trainer.mode.value}"
    if recipe.rollout.engine is not Engine.transformers or recipe.cluster.launcher is not LauncherName.local:
        yield (
            ("trainer", "mode"),
            f"{mode} runs with rollout.engine=transformers and cluster.launcher=local. Set trainer.mode=sync.",
        )
    if section.warmup_batches > section.staleness:
        yield (
            ("trainer", "async", "warmup_batches"),
            f"trainer.async.warmup_batches is {section.warmup_batches}: a batch played that far ahead is as many steps "
            f"old when it is trained, and trainer.async.staleness leaves out what is older than {section.staleness}.",
        )
    minibatch = trainer.minibatch_size or trainer.batch_size
    if trainer.mode is Mode.colocate_async and section.sync_every > 1:
        yield (
            ("trainer", "async", "sync_every"),
            f"trainer.async.sync_every is {section.sync_every}, and {mode} delivers weights after every step. Leave it "
            "out, or set trainer.mode=separate_async.",
        )
    elif trainer.mode is Mode.separate_async and trainer.batch_size != section.sync_every * minibatch:
        yield (
            ("trainer", "async", "sync_every"),
            f"trainer.batch_size ({trainer.batch_size}) must be trainer.async.sync_every ({section.sync_every}) times "
            f"trainer.minibatch_size ({minibatch}): with {mode} weights are delivered once a step.",
        )
    if recipe.algorithm.rollout_correction is not RolloutCorrection.off:
        yield (
            ("algorithm", "rollout_correction"),
            f"with {mode} trainer.async.correction corrects for other probabilities. Leave "
            "algorithm.rollout_correction out.",
        )
