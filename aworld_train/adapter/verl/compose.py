"""Translates a recipe into a complete VeRL configuration.

The dotted keys of the recipe's sections, then its raw ``verl`` section, are merged into the defaults that ship with the
installed VeRL; every raw key is checked against them. Only references to environment variables stay ``${oc.env:NAME}``:
VeRL's processes resolve them.
"""

import shlex
import sys
from collections.abc import Iterator, Mapping
from enum import Enum
from operator import attrgetter
from pathlib import Path
from typing import Any

from aworld_train.adapter.base import MAX_SAMPLERS
from aworld_train.adapter.episodes.groups import min_group
from aworld_train.adapter.episodes.paths import EPISODES_FILE, REWARD_FILE, absolute_path
from aworld_train.adapter.verl import schema
from aworld_train.adapter.verl.attention import (
    FLASH,
    TRIE,
    TRIE_MODULE,
    VARLEN,
    VARLEN_MODULE,
    attention_of,
)
from aworld_train.adapter.verl.cpu import CHECKPOINT_ENGINE_MODULE, OBJECTS, REGISTRATION_MODULE
from aworld_train.adapter.verl.fork_client import STAND_IN
from aworld_train.adapter.verl.megatron import megatron_keys
from aworld_train.adapter.verl.model_checks import FUSED, sees_images, ties_head
from aworld_train.adapter.verl.recipe_keys import (
    ACTOR,
    ALWAYS_LOGGED,
    COPIED,
    COPIED_AGAIN,
    FSDP_COPIED,
    MEGATRON_COPIED,
    MODEL,
    REF,
    ROLLOUT,
    sft_key,
)
from aworld_train.adapter.verl.vllm_on_cpu import engine_keys
from aworld_train.adapter.verl.worker_setup import WORKER_SETUP
from aworld_train.recipe.checks import batch_tokens
from aworld_train.recipe.device import device_of, on_cpu, sampling_type
from aworld_train.recipe.output import written
from aworld_train.recipe.presets import MINIRL
from aworld_train.recipe.schema import (
    AsyncCorrection,
    Curriculum,
    Device,
    Engine,
    EqualGroup,
    LauncherName,
    Method,
    Mode,
    Offload,
    Recipe,
    RolloutCorrection,
    Strategy,
)
from aworld_train.recipe.tree import KeyPath, dotted, map_values, merge, put

CONFIG_FILE = "verl.yaml"
AGENT_FILE = "agent.yaml"
LOGPROBS_MODULE = "aworld_train.adapter.verl.logprobs"
VISION_BATCHES_MODULE = "aworld_train.adapter.verl.vision_batches"
"""Each replaces a function of VeRL's where it is imported."""
MINIRL_MODULE = "aworld_train.adapter.verl.minirl"
_AGENT_LOOP = "aworld_train.adapter.verl.agent_loop.EpisodeLoop"
_SETUP_HOOK = "worker_process_setup_hook"
TRAINERS = {
    Mode.sync: "episodes",
    Mode.colocate_async: "episodes_colocate_async",
    Mode.separate_async: "episodes_separate_async",
}
"""Names of the classes in ``trainer`` and ``async_trainers``, which import VeRL."""
ROLLOUT_IS = {
    AsyncCorrection.none: None,
    AsyncCorrection.truncated_is: "token",
    AsyncCorrection.sequence_is: "sequence",
}
OBJECT_STORE_BYTES = 400_000_000  # of the private Ray: weights travel in parts of 64 MB, batches are small
_MIN_CPUS = 32  # Ray counts actors, not load: enough for VeRL's actors on any small machine
# VeRL 0.9.1: ResourcePoolManager.max_colocate_count; its queue and controller.
_CPUS_PER_RANK, _CPUS_BESIDE = 3, 8


def compose(recipe: Recipe, run_dir: Path) -> dict[str, Any]:
    composed = _overlaid(recipe, run_dir)
    schema.check(composed, recipe.raw)
    return schema.resolve(composed)


def raw_key_faults(recipe: Recipe) -> Iterator[tuple[KeyPath, str]]:
    """Raw ``verl`` keys that VeRL does not know, and values of the wrong type: VeRL's key, and a sentence for each."""
    if recipe.raw:
        yield from schema.faults(_overlaid(recipe, Path("runs")), recipe.raw)


def _overlaid(recipe: Recipe, run_dir: Path) -> dict[str, Any]:
    if recipe.trainer.method is Method.sft:
        defaults = schema.default_config(Method.sft)
        own = written(_nested(sft_keys(recipe, run_dir, defaults)))
    else:
        defaults = schema.default_config(recipe.trainer.strategy)
        own = written(_nested(own_keys(recipe, run_dir)))
    return merge(merge(defaults, own), recipe.raw)


def own_keys(recipe: Recipe, run_dir: Path) -> dict[str, Any]:
    return {
        **_copied(recipe),
        **_model(recipe),
        **_data(recipe),
        **_actor(recipe),
        **_algorithm(recipe),
        **_rollout(recipe, run_dir),
        **_sampler(recipe),
        **_reward(recipe, run_dir),
        **_trainer(recipe, run_dir),
        **_asynchronous(recipe),
        **_teacher(recipe),
        **_ray(recipe),
    }


def sft_keys(recipe: Recipe, run_dir: Path, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of the RL trainer that the SFT trainer has too, by its names, and those that it has alone."""
    shared = {moved: value for key, value in own_keys(recipe, run_dir).items() if (moved := sft_key(key))}
    known = {dotted(path) for path, _ in map_values(defaults)} | {"model.override_config"}
    return {
        **{key: value for key, value in shared.items() if key in known or key.startswith("engine.")},
        # Rows have very different lengths, so a pass is filled by tokens.
        "data.use_dynamic_bsz": True,
        "data.max_token_len_per_gpu": batch_tokens(recipe),
        "data.max_length": recipe.max_episode_tokens,
        "data.num_workers": 0,
        "trainer.seed": recipe.trainer.seed,
        "trainer.balance_batch": False,
    }


def agent_file(recipe: Recipe, run_dir: Path) -> list[dict[str, Any]]:
    settings = str(run_dir.resolve() / EPISODES_FILE)
    return [written({"name": recipe.agent.name, "_target_": _AGENT_LOOP, "settings": settings})]


def joins_cluster(recipe: Recipe) -> bool:
    """Whether VeRL attaches to a Ray cluster that is there already, and starts none."""
    return recipe.cluster.launcher.value in ("ray", "kubernetes")


def logical_cpus(recipe: Recipe) -> int:
    """The processors that a machine declares to Ray; VeRL would wait without end for some that it does not have."""
    return max(_MIN_CPUS, _CPUS_PER_RANK * _logical_gpus(recipe) + _CPUS_BESIDE)


def forks(recipe: Recipe) -> bool:
    """Whether the run's processes are forks (see ``fork_server``): with a Ray of its own, no CUDA, and on Linux."""
    plays = recipe.trainer.method is not Method.sft
    return plays and not joins_cluster(recipe) and on_cpu(recipe) and sys.platform == "linux"


def _copied(recipe: Recipe) -> dict[str, Any]:
    by_strategy = MEGATRON_COPIED if by_megatron(recipe) else FSDP_COPIED
    values = {key: attrgetter(own)(recipe) for key, own in {**COPIED, **COPIED_AGAIN, **by_strategy}.items()}
    return {key: value.value if isinstance(value, Enum) else value for key, value in values.items()}


def _model(recipe: Recipe) -> dict[str, Any]:
    keys: dict[str, Any] = {
        f"{MODEL}.path": absolute_path(recipe.model.location),
        f"{MODEL}.use_remove_padding": not on_cpu(recipe),
        f"{MODEL}.enable_gradient_checkpointing": not on_cpu(recipe),
    }
    if modules := _external_modules(recipe):
        keys[f"{MODEL}.external_lib"] = modules
    if by_megatron(recipe):
        return keys
    keys[f"{MODEL}.override_config"] = {"attn_implementation": attention_of(recipe)}
    if not on_cpu(recipe) and ties_head(recipe) and not recipe.trainer.shared_prefix:
        # Probabilities by parts of a row: the logits of a whole one are its length times the vocabulary.
        keys[FUSED] = True
    return keys


def _external_modules(recipe: Recipe) -> list[str]:
    losses = [MINIRL_MODULE] if recipe.algorithm.loss == MINIRL else []
    if by_megatron(recipe):
        return losses
    modules, attention = [], attention_of(recipe)
    if on_cpu(recipe):
        modules.append(REGISTRATION_MODULE)
    elif device_of(recipe) is Device.cuda and attention != FLASH:
        of_attention = {VARLEN: [VARLEN_MODULE], TRIE: [TRIE_MODULE]}
        modules += [LOGPROBS_MODULE, *of_attention.get(attention, [])]
    if sees_images(recipe):
        modules.append(VISION_BATCHES_MODULE)
    return modules + losses


def _data(recipe: Recipe) -> dict[str, Any]:
    return {
        "data.train_files": _files(recipe.dataset.train),
        "data.val_files": _files(recipe.dataset.val),
        "data.dataloader_num_workers": 0,
        "data.return_raw_chat": True,
    }


def _files(files: str | list[str] | None) -> Any:
    return [absolute_path(file) for file in files] if isinstance(files, list) else absolute_path(files)


def _actor(recipe: Recipe) -> dict[str, Any]:
    trainer, algorithm = recipe.trainer, recipe.algorithm
    keys: dict[str, Any] = {
        f"{ACTOR}.ppo_mini_batch_size": trainer.minibatch_size or trainer.batch_size,
        f"{ACTOR}.use_kl_loss": algorithm.kl_coef > 0,
        # With "hf_model" Hugging Face libraries can load every checkpoint without conversion.
        f"{ACTOR}.checkpoint.save_contents": ["model", "optimizer", "extra", "hf_model"],
        f"{ACTOR}.checkpoint.load_contents": ["model", "optimizer", "extra"],
    }
    if algorithm.loss_aggregation == "seq-mean-token-sum-norm":
        # VeRL would divide by the longest row of each pass, so an episode would weigh what its neighbours make of it.
        keys[f"{ACTOR}.loss_scale_factor"] = recipe.rollout.max_response_tokens
    if trainer.dynamic_batches:
        keys |= {
            f"{ACTOR}.ppo_max_token_len_per_gpu": batch_tokens(recipe),
            f"{REF}.log_prob_max_token_len_per_gpu": 2 * batch_tokens(recipe),
        }
    return keys | (megatron_keys(recipe) if by_megatron(recipe) else _fsdp(recipe))


def by_megatron(recipe: Recipe) -> bool:
    return recipe.trainer.strategy is Strategy.megatron


def _fsdp(recipe: Recipe) -> dict[str, Any]:
    trainer = recipe.trainer
    keys: dict[str, Any] = {
        f"{ACTOR}.strategy": "fsdp2",
        f"{ACTOR}.fsdp_config.param_offload": trainer.offload in (Offload.params, Offload.all),
        f"{ACTOR}.fsdp_config.optimizer_offload": trainer.offload in (Offload.optimizer, Offload.all),
        f"{ACTOR}.fsdp_config.seed": trainer.seed,
    }
    if on_cpu(recipe):
        for role in (ACTOR, REF):
            keys[f"{role}.use_torch_compile"] = False
            keys[f"{role}.fsdp_config.use_torch_compile"] = False
            keys[f"{role}.fsdp_config.model_dtype"] = "fp32"
            keys[f"{role}.fsdp_config.dtype"] = "float32"
            keys[f"{role}.fsdp_config.mixed_precision"] = {
                "param_dtype": "fp32",
                "reduce_dtype": "fp32",
                "buffer_dtype": "fp32",
            }
    elif device_of(recipe) is Device.cuda:
        # Without it AdamW works on lists of all parameters and holds a fourth more memory at its step.
        keys[f"{ACTOR}.optim.override_optimizer_config"] = {"fused": True}
    return keys


def _algorithm(recipe: Recipe) -> dict[str, Any]:
    correction = recipe.algorithm.rollout_correction
    keys: dict[str, Any] = {
        "algorithm.use_kl_in_reward": recipe.algorithm.kl_reward_coef > 0,
        "algorithm.rollout_correction.rollout_is": None
        if correction is RolloutCorrection.off
        else correction.value,
    }
    if recipe.algorithm.loss == MINIRL:
        # VeRL takes the probabilities with which tokens were sampled for the old ones, which its ratio is to.
        keys["algorithm.rollout_correction.bypass_mode"] = True
    return keys


def _rollout(recipe: Recipe, run_dir: Path) -> dict[str, Any]:
    section = recipe.rollout
    keys: dict[str, Any] = {
        f"{ROLLOUT}.val_kwargs.do_sample": section.val_temperature > 0,
        f"{ROLLOUT}.calculate_log_probs": True,
        f"{ROLLOUT}.dtype": sampling_type(recipe).value,
        f"{ROLLOUT}.agent.default_agent_loop": recipe.agent.name,
        f"{ROLLOUT}.agent.agent_loop_config_path": str(run_dir.resolve() / AGENT_FILE),
        f"{ROLLOUT}.agent.agent_loop_manager_class": "aworld_train.adapter.verl.worker.EpisodeManager",
        f"{ROLLOUT}.multi_turn.enable": True,
        "transfer_queue.backend.SimpleStorage.num_data_storage_units": 1,
    }
    if on_cpu(recipe):
        keys |= {
            f"{ROLLOUT}.load_format": "auto",
            f"{ROLLOUT}.free_cache_engine": False,
            f"{ROLLOUT}.enforce_eager": True,
        }
        if section.engine is Engine.vllm:
            keys |= {f"{ROLLOUT}.{key}": value for key, value in engine_keys(recipe).items()}
    elif recipe.model.lora.rank > 0:
        # VeRL sends the adapter alone, so the engine reads the weights below it from the model's files.
        keys[f"{ROLLOUT}.load_format"] = "safetensors"
    if section.engine is Engine.vllm:
        keys[f"{ROLLOUT}.max_model_len"] = recipe.max_episode_tokens
    arguments = f"{ROLLOUT}.engine_kwargs.{section.engine.value}"
    keys |= {f"{arguments}.{name}": value for name, value in section.engine_args.items()}
    return keys


def _sampler(recipe: Recipe) -> dict[str, Any]:
    trainer, rollout = recipe.trainer, recipe.rollout
    is_sync = trainer.mode is Mode.sync
    settings = {
        "min_group": min_group(recipe),
        "equal_group": rollout.equal_group.value,
        "max_resamples": rollout.max_resamples,
        "curriculum": recipe.dataset.curriculum is not Curriculum.none,
        "age_decay": recipe.algorithm.age_decay,
    }
    if not is_sync:
        settings |= {
            "max_staleness": trainer.async_.staleness,
            "partial_rollouts": trainer.async_.partial_rollouts,
            "recovery_timeout": trainer.async_.recovery_timeout,
        }
    keys: dict[str, Any] = {
        "trainer.v1.sampler.custom_sampler.path": "pkg://aworld_train.adapter.verl.sampler",
        "trainer.v1.sampler.custom_sampler.name": "GroupSampler" if is_sync else "AsyncGroupSampler",
        "trainer.v1.sampler.sampler_kwargs": settings,
    }
    if not is_sync or rollout.equal_group is EqualGroup.resample:
        keys["data.gen_batch_size"] = 1  # else VeRL cannot play one task in place of another
    return keys


def _reward(recipe: Recipe, run_dir: Path) -> dict[str, Any]:
    return {
        "reward.num_workers": 1,
        "reward.custom_reward_function.path": "pkg://aworld_train.adapter.verl.reward",
        "reward.custom_reward_function.name": "score",
        "reward.custom_reward_function.reward_kwargs": {"settings": str(run_dir.resolve() / REWARD_FILE)},
        # Not used, because the reward is a function, but VeRL requires a value and has no default.
        "reward.reward_model.rollout.name": recipe.rollout.engine.value,
    }


def _trainer(recipe: Recipe, run_dir: Path) -> dict[str, Any]:
    trainer = recipe.trainer
    return {
        "trainer.logger": [*ALWAYS_LOGGED, *trainer.loggers],
        "trainer.device": device_of(recipe).value,
        # Every epoch has at least one step, so that as many epochs as steps never end a run too early.
        "trainer.total_training_steps": trainer.steps if trainer.epochs is None else None,
        "trainer.total_epochs": trainer.epochs or trainer.steps,
        "trainer.val_only": False,
        "trainer.val_before_train": trainer.val_ends,
        "trainer.test_freq": trainer.val_interval,
        "trainer.resume_mode": "auto",
        "trainer.v1.trainer_mode": TRAINERS[trainer.mode],
        "trainer.default_local_dir": str(run_dir.resolve() / "checkpoints"),
        "trainer.validation_data_dir": str(run_dir.resolve() / "traces" / "validation"),
    }


def _asynchronous(recipe: Recipe) -> dict[str, Any]:
    mode, section = recipe.trainer.mode, recipe.trainer.async_
    if mode is Mode.sync:
        return {}
    correction = "algorithm.rollout_correction"
    keys: dict[str, Any] = {
        f"trainer.v1.{mode.value}.num_warmup_batches": section.warmup_batches,
        # VeRL counts from when a task was begun, the sampler from the weights; it has its bound from sampler_kwargs.
        "trainer.v1.sampler.max_off_policy_threshold": None,
        f"{correction}.rollout_is": ROLLOUT_IS[section.correction],
        f"{correction}.rollout_is_threshold": section.correction_cap,
    }
    if mode is Mode.separate_async:
        keys |= {
            "actor_rollout_ref.hybrid_engine": False,
            "trainer.v1.separate_async.parameter_sync_step": section.sync_every,
            f"{ROLLOUT}.nnodes": 1,
            f"{ROLLOUT}.n_gpus_per_node": recipe.rollout.samplers,
            f"{ROLLOUT}.checkpoint_engine.backend": OBJECTS,
            f"{ROLLOUT}.checkpoint_engine.custom_backend_module": CHECKPOINT_ENGINE_MODULE,
        }
    return keys


def _teacher(recipe: Recipe) -> dict[str, Any]:
    if recipe.teacher is None:
        return {}
    section = "distillation"
    return {
        f"{section}.enabled": True,
        f"{section}.nnodes": 1,
        f"{section}.n_gpus_per_node": recipe.distill.gpus,
        f"{section}.teacher_models.teacher_model.model_path": absolute_path(recipe.teacher),
        f"{section}.teacher_models.teacher_model.inference.tensor_model_parallel_size": recipe.distill.gpus,
        # The trainer puts the teacher into the advantages, by episodes; VeRL's own term, which is by rows, is nothing.
        f"{section}.distillation_loss.loss_max_clamp": 0.0,
        "trainer.v1.sampler.sampler_kwargs.reward_coef": recipe.distill.reward_coef,
    }


def _logical_gpus(recipe: Recipe) -> int:
    """With room for the samplers that may be asked for during a run (`runs samplers`)."""
    separate = recipe.trainer.mode is Mode.separate_async
    return recipe.gpus_of_machine + (max(recipe.rollout.samplers, MAX_SAMPLERS) if separate else 0)


def _ray(recipe: Recipe) -> dict[str, Any]:
    init: dict[str, Any] = {"log_to_driver": True, "runtime_env": {_SETUP_HOOK: WORKER_SETUP}}
    if recipe.cluster.environment:
        init["runtime_env"]["env_vars"] = recipe.cluster.environment
    # Ray writes the interpreter's path unquoted into a shell command; a path with a space would end the run.
    init["runtime_env"]["py_executable"] = (
        shlex.join(STAND_IN) if forks(recipe) else shlex.quote(sys.executable)
    )
    if recipe.cluster.launcher is not LauncherName.local:
        # The Ray that RAY_ADDRESS names has its own sizes; Ray refuses a driver that sends some.
        return {"ray_kwargs.ray_init": init | {"address": "auto"}}
    init |= {
        "address": "local",  # otherwise Ray silently joins any cluster that it finds on the machine
        "include_dashboard": False,
        "num_cpus": logical_cpus(recipe),
    }
    if on_cpu(recipe):
        init |= {"num_gpus": _logical_gpus(recipe), "object_store_memory": OBJECT_STORE_BYTES}
    return {"ray_kwargs.ray_init": init}


def _nested(keys: dict[str, Any]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for key, value in keys.items():
        put(tree, tuple(key.split(".")), value)
    return tree
