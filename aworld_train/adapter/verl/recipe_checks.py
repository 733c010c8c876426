"""Everything in a recipe that VeRL or a run on it cannot use, found without importing VeRL."""

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from aworld_train.adapter.base import owned_faults
from aworld_train.adapter.verl.attention import attention_faults, shared_prefix_faults
from aworld_train.adapter.verl.compose import MINIRL_MODULE, by_megatron, joins_cluster, raw_key_faults
from aworld_train.adapter.verl.engine_args import engine_arg_faults
from aworld_train.adapter.verl.megatron import megatron_faults
from aworld_train.adapter.verl.model_checks import model_faults
from aworld_train.adapter.verl.name_checks import name_faults, value_at
from aworld_train.adapter.verl.owned_keys import OWNED_KEYS, SFT_OWNED
from aworld_train.adapter.verl.recipe_keys import sft_key
from aworld_train.adapter.verl.size_checks import size_faults
from aworld_train.adapter.verl.trackers import tracker_faults
from aworld_train.recipe.device import device_of, gpus_of_machine, on_cpu
from aworld_train.recipe.interpolation import has_lookup
from aworld_train.recipe.presets import MINIRL
from aworld_train.recipe.schema import (
    AsyncCorrection,
    Engine,
    EqualGroup,
    LauncherName,
    Method,
    Mode,
    Recipe,
    RolloutCorrection,
    SamplingType,
)
from aworld_train.recipe.secret_keys import looks_secret
from aworld_train.recipe.tree import KeyPath, dotted, leaves

UNUSABLE_ESTIMATORS = {
    "remax": "reward_baselines",
    "optimal_token_baseline": "sum_pi_squared",
    "tir_optimal_token_baseline": "sum_pi_squared",
}
"""Estimators that VeRL's current trainer cannot use, with the input that only its older trainer computes."""
_CRITIC_MODEL = "critic.model.path"
_CRITIC_SIZES = ("critic.ppo_micro_batch_size_per_gpu", "critic.use_dynamic_bsz")


def faults(recipe: Recipe) -> Iterator[tuple[KeyPath, str]]:
    if recipe.trainer.method is Method.sft:
        yield from _sft_faults(recipe)
        return
    yield from _secrets(recipe)
    yield from _batches(recipe)
    yield from _references(recipe)
    yield from _device(recipe)
    yield from name_faults(recipe)
    if not joins_cluster(recipe):  # whose image has packages of its own; the run checks them there
        yield from tracker_faults(recipe)
    yield from megatron_faults(recipe) if by_megatron(recipe) else attention_faults(recipe)
    yield from shared_prefix_faults(recipe)
    yield from _sglang(recipe)
    yield from _sampling(recipe)
    yield from _correction(recipe)
    yield from _equal_groups(recipe)
    yield from _estimator(recipe)
    if recipe.teacher is not None:
        yield from _teacher(recipe)
    yield from model_faults(recipe)
    yield from size_faults(recipe)
    yield from engine_arg_faults(recipe)
    for path, text in raw_key_faults(recipe):
        yield ("verl", *path), text


def _sft_faults(recipe: Recipe) -> Iterator[tuple[KeyPath, str]]:
    cluster = recipe.cluster
    if cluster.nodes > 1 or joins_cluster(recipe):
        yield (
            ("cluster", "nodes" if cluster.nodes > 1 else "launcher"),
            "trainer.method=sft runs in processes of one machine: set cluster.nodes=1, and cluster.launcher to local "
            "or slurm.",
        )
    if by_megatron(recipe):
        yield (
            ("trainer", "strategy"),
            "trainer.method=sft divides the model with trainer.strategy=fsdp2 alone.",
        )
    if not recipe.dataset.shuffle:
        yield ("dataset", "shuffle"), "trainer.method=sft shuffles the rows in each epoch. Leave the key out."
    owned = {
        moved: reason for key, reason in OWNED_KEYS.items() if "*" not in key and (moved := sft_key(key))
    }
    yield from owned_faults("verl", owned | SFT_OWNED, recipe.raw)
    yield from _secrets(recipe)
    yield from _references(recipe)
    yield from _own_library(recipe, "model.external_lib")
    yield from tracker_faults(recipe)
    yield from attention_faults(recipe)
    yield from shared_prefix_faults(recipe)
    for path, text in raw_key_faults(recipe):
        yield ("verl", *path), text


def _references(recipe: Recipe) -> Iterator[tuple[KeyPath, str]]:
    """VeRL resolves its configuration several times, so that no quoting holds."""
    paths = [(("model", "path"), recipe.model.location)]
    paths += [(("dataset", "train"), file) for file in recipe.dataset.train_files]
    paths += [(("dataset", "val"), file) for file in recipe.dataset.val_files]
    for key, path in paths:
        place = Path(path or "/").expanduser().resolve()
        if "${" in str(place) and place.exists():
            yield (
                key,
                f"`{dotted(key)}`: {place} has '${{' in its path, which VeRL reads as a reference. Move it.",
            )


def _device(recipe: Recipe) -> Iterator[tuple[KeyPath, str]]:
    if not on_cpu(recipe):
        if recipe.rollout.engine is Engine.transformers:
            yield (
                ("rollout", "engine"),
                f"rollout.engine=transformers samples on CPU alone, and cluster.device is "
                f"{device_of(recipe).value}. Set rollout.engine=vllm, or cluster.device=cpu.",
            )
        return
    if recipe.model.lora.rank > 0 and recipe.rollout.engine is Engine.transformers:
        yield (
            ("model", "lora", "rank"),
            f"model.lora.rank is {recipe.model.lora.rank}, but the engine transformers has no LoRA: VeRL sends "
            "it merged weights in bfloat16, so it would sample from another model than is trained. Set "
            "model.lora.rank=0, or rollout.engine=vllm.",
        )
    if recipe.rollout.engine is Engine.transformers and recipe.rollout.dtype is SamplingType.bfloat16:
        yield (
            ("rollout", "dtype"),
            "rollout.dtype is bfloat16, and the engine transformers computes in float32, as the trainer does on a CPU. "
            "Leave it out, or set rollout.engine=vllm.",
        )
    yield from _own_library(recipe, "actor_rollout_ref.model.external_lib")


def _own_library(recipe: Recipe, key: str) -> Iterator[tuple[KeyPath, str]]:
    if on_cpu(recipe) and value_at(recipe.raw, key) is not None:
        yield (
            ("verl", *key.split(".")),
            f"verl.{key} cannot be set on a CPU: what VeRL needs there is loaded by this key.",
        )


def _sglang(recipe: Recipe) -> Iterator[tuple[KeyPath, str]]:
    if recipe.rollout.engine is not Engine.sglang:
        return
    key: KeyPath = ("rollout", "engine")
    if on_cpu(recipe):
        yield key, "rollout.engine=sglang samples on GPUs. Set cluster.device=cuda, or another engine."
    elif not joins_cluster(recipe) and gpus_of_machine(device_of(recipe)) and find_spec("sglang") is None:
        yield (
            key,
            "rollout.engine is sglang, which is not installed. Install what `verl[sglang]` names into an environment "
            "of its own, for vLLM has other versions; or set rollout.engine=vllm.",
        )


def _sampling(recipe: Recipe) -> Iterator[tuple[KeyPath, str]]:
    """The trainer knows no top-p and top-k: a token's probability would not be that with which it was sampled."""
    for name, is_set in (("top_p", recipe.rollout.top_p < 1), ("top_k", recipe.rollout.top_k > 0)):
        if is_set:
            yield (
                ("rollout", name),
                f"rollout.{name} is {getattr(recipe.rollout, name)}: training samples from the whole distribution, of "
                "which the trainer computes probabilities; every ratio to those of a part of it would be wrong. Leave "
                f"it out; rollout.val_top_p is for validations, and eval.{name} for `eval`.",
            )


_BY_ROWS = {
    "bypass_mode": "weighs and rejects rows, and an episode may have several. Leave it out: "
    "algorithm.rollout_correction and verl.algorithm.rollout_correction.rollout_rs are of whole episodes.",
    "geo_mean": "takes a mean over the rows of each pass, so what an episode weighs depends on how many rows it has "
    "and which rows it is computed with. gspo has one ratio a row too, and weighs by algorithm.loss_aggregation.",
}
"""Losses of VeRL that cannot give an episode one weight."""


def _correction(recipe: Recipe) -> Iterator[tuple[KeyPath, str]]:
    """Corrections that VeRL computes in the loss, where a row is all that is known, or does not compute at all."""
    section = "algorithm.rollout_correction"
    key: KeyPath = ("verl", *section.split("."))
    algorithm = recipe.algorithm
    if reason := _BY_ROWS.get(algorithm.loss):
        yield ("algorithm", "loss"), f"algorithm.loss={algorithm.loss} {reason}"
    yield from _minirl(recipe)
    rejection = value_at(recipe.raw, f"{section}.rollout_rs")
    if rejection and value_at(recipe.raw, f"{section}.rollout_rs_threshold") is None:
        yield (
            (*key, "rollout_rs"),
            f"verl.{section}.rollout_rs is {rejection}, and verl.{section}.rollout_rs_threshold says nothing: name the "
            "bounds, such as '0.5_2.0' for a kind that ends in k1, or leave both out.",
        )
    is_corrected = algorithm.rollout_correction is not RolloutCorrection.off or rejection
    if value_at(recipe.raw, f"{section}.bypass_mode") is True and is_corrected:
        yield (
            (*key, "bypass_mode"),
            f"verl.{section}.bypass_mode takes the engine's probabilities for the trainer's, so there is nothing to "
            f"correct. Leave it out, or algorithm.rollout_correction and verl.{section}.rollout_rs.",
        )


def _minirl(recipe: Recipe) -> Iterator[tuple[KeyPath, str]]:
    algorithm = recipe.algorithm
    if algorithm.loss != MINIRL:
        if algorithm.age_decay:
            yield (
                ("algorithm", "age_decay"),
                f"algorithm.age_decay closes the bounds of algorithm.loss={MINIRL}, and algorithm.loss is "
                f"{algorithm.loss}. Leave it out.",
            )
        return
    corrections = {
        ("algorithm", "rollout_correction"): algorithm.rollout_correction is not RolloutCorrection.off,
        ("trainer", "async", "correction"): recipe.trainer.mode is not Mode.sync
        and recipe.trainer.async_.correction is not AsyncCorrection.none,
    }
    for key in (key for key, is_set in corrections.items() if is_set):
        off = "off" if key[0] == "algorithm" else "none"
        yield (
            key,
            f"algorithm.loss={MINIRL} weighs each token by its probability over that with which it was sampled, "
            f"so there is nothing left to correct. Set {dotted(key)}={off}.",
        )
    library = "actor_rollout_ref.model.external_lib"
    if (own := value_at(recipe.raw, library)) is not None and MINIRL_MODULE not in own:
        yield (
            ("verl", *library.split(".")),
            f"algorithm.loss={MINIRL} is registered by {MINIRL_MODULE}: put it into the list of verl.{library}, which "
            "takes the place of what a run would load.",
        )
    if value_at(recipe.raw, "algorithm.rollout_correction.bypass_mode") is False:
        yield (
            ("verl", "algorithm", "rollout_correction", "bypass_mode"),
            f"algorithm.loss={MINIRL} needs verl.algorithm.rollout_correction.bypass_mode, which it sets. Leave it "
            "out.",
        )


def _equal_groups(recipe: Recipe) -> Iterator[tuple[KeyPath, str]]:
    key: KeyPath = ("rollout", "equal_group")
    equal_group = recipe.rollout.equal_group
    if equal_group is EqualGroup.keep:
        return
    if recipe.rollout.n < 2:
        yield (
            key,
            f"rollout.equal_group is {equal_group.value}, and rollout.n is 1: there is nothing to compare.",
        )
    part = value_at(recipe.raw, "data.gen_batch_size")
    if equal_group is EqualGroup.resample and part not in (None, 1):
        yield (
            ("verl", "data", "gen_batch_size"),
            "rollout.equal_group=resample plays tasks one by one in place of others. Leave verl.data.gen_batch_size "
            "out, or set rollout.equal_group to keep or drop.",
        )


def _secrets(recipe: Recipe) -> Iterator[tuple[KeyPath, str]]:
    for path, value in leaves(recipe.raw):
        key: KeyPath = ("verl", *path)
        refers = isinstance(value, str) and has_lookup(value)
        if looks_secret(path) and value is not None:
            yield (
                key,
                f"verl.{dotted(path)} looks like a secret, and VeRL's configuration is written into the run folder. "
                "Export it as an environment variable instead: VeRL's processes inherit the environment.",
            )
        elif refers and path[:1] == ("ray_kwargs",):
            yield (
                key,
                f"verl.{dotted(path)} refers to an environment variable, and Ray shows what it is started with on "
                "command lines and in its logs. Write the value itself, or leave it to the environment, which VeRL's "
                "processes inherit.",
            )
        elif refers and path == ("trainer", "wandb_proxy"):
            yield (
                key,
                "verl.trainer.wandb_proxy refers to an environment variable, and VeRL sends its configuration to "
                "Weights & Biases. Export HTTPS_PROXY instead: VeRL's processes inherit the environment.",
            )


def _batches(recipe: Recipe) -> Iterator[tuple[KeyPath, str]]:
    tasks = recipe.trainer.batch_size
    samples = value_at(recipe.raw, "data.train_max_samples")
    if isinstance(samples, int) and samples != -1 and samples < tasks:
        yield (
            ("verl", "data", "train_max_samples"),
            f"verl.data.train_max_samples is {samples}, fewer tasks than one step takes "
            f"(trainer.batch_size is {tasks}).",
        )
    part = value_at(recipe.raw, "data.gen_batch_size")
    if isinstance(part, int) and (part < 1 or tasks % part):
        yield (
            ("verl", "data", "gen_batch_size"),
            f"trainer.batch_size ({tasks}) must be a multiple of verl.data.gen_batch_size ({part}).",
        )
    length = value_at(recipe.raw, "actor_rollout_ref.rollout.max_model_len")
    tokens = recipe.max_episode_tokens
    if isinstance(length, int) and length < tokens:
        yield (
            ("verl", "actor_rollout_ref", "rollout", "max_model_len"),
            f"verl.actor_rollout_ref.rollout.max_model_len is {length}, fewer than the {tokens} tokens of the longest "
            "episode (dataset.max_prompt_tokens and rollout.max_response_tokens).",
        )


def _estimator(recipe: Recipe) -> Iterator[tuple[KeyPath, str]]:
    name, raw = recipe.algorithm.name, recipe.raw
    key: KeyPath = ("algorithm", "name")
    if name in UNUSABLE_ESTIMATORS:
        yield (
            key,
            f"algorithm.name={name} needs {UNUSABLE_ESTIMATORS[name]}, which only VeRL's older trainer computes. "
            "Choose another one, such as grpo or rloo.",
        )
    if name == "gdpo" and not value_at(raw, "algorithm.gdpo_reward_keys"):
        yield key, "algorithm.name=gdpo needs the parts of the score in verl.algorithm.gdpo_reward_keys."
    enabled = value_at(raw, "critic.enable")
    if name == "gae" or enabled:
        cause = "algorithm.name=gae" if name == "gae" else "verl.critic.enable"
        yield from _critic(recipe, key if name == "gae" else ("verl", "critic", "enable"), cause)
    elif warmup := value_at(raw, "trainer.critic_warmup"):
        yield (
            ("verl", "trainer", "critic_warmup"),
            f"verl.trainer.critic_warmup is {warmup}, and there is no critic: the first steps would train nothing.",
        )


_OF_TEACHER = "distillation"
_FREE_OF_TEACHER = f"{_OF_TEACHER}.teacher_models.teacher_model.inference."


def _teacher(recipe: Recipe) -> Iterator[tuple[KeyPath, str]]:
    if recipe.cluster.launcher is not LauncherName.local:
        yield (
            ("cluster", "launcher"),
            f"`cluster.launcher` is {recipe.cluster.launcher.value}, and `trainer.method: distill` needs GPUs of its "
            "own for the teacher, which are counted on one machine alone: set cluster.launcher=local.",
        )
    if on_cpu(recipe) and recipe.rollout.engine is Engine.vllm:
        yield (
            ("rollout", "engine"),
            "rollout.engine is vllm, and on processors a teacher is served by the engine transformers alone. Leave it "
            "out, or set cluster.device=cuda.",
        )
    for path, _ in leaves(recipe.raw):
        if path[:1] == (_OF_TEACHER,) and not dotted(path).startswith(_FREE_OF_TEACHER):
            yield (
                ("verl", *path),
                f"verl.{dotted(path)} cannot be set with `trainer.method: distill`, which composes it from `distill`.",
            )


def _critic(recipe: Recipe, key: KeyPath, cause: str) -> Iterator[tuple[KeyPath, str]]:
    raw: dict[str, Any] = recipe.raw
    if on_cpu(recipe):
        yield (
            key,
            f"{cause} needs a critic, which needs a GPU. Choose an estimator without one, such as grpo.",
        )
        return
    missing = [] if value_at(raw, _CRITIC_MODEL) else [f"verl.{_CRITIC_MODEL}"]
    if not any(value_at(raw, size) for size in _CRITIC_SIZES):
        missing.append(f"verl.{_CRITIC_SIZES[0]}")
    if value_at(raw, "critic.enable") is False:
        yield key, f"{cause} needs a critic, and verl.critic.enable is false. Leave that key out."
    elif missing:
        yield (
            key,
            f"{cause} needs a critic: set {' and '.join(missing)}, or choose an estimator without one, such as grpo.",
        )
