"""Checks that VeRL knows the names in a recipe: of estimators, losses, loggers, schedulers and the like.

Where a recipe has code of its own that can register more (``external_lib``), names are not checked.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from aworld_train.adapter.verl.registries import compared, listed, registered, torch_optimizers
from aworld_train.errors import suggestion
from aworld_train.recipe.presets import MINIRL
from aworld_train.recipe.schema import AlgorithmSection, Recipe
from aworld_train.recipe.tree import KeyPath, dotted, map_values

_ALGORITHMS = "trainer/ppo/core_algos.py"
Names = Callable[[], frozenset[str]]

ESTIMATORS: Names = partial(registered, _ALGORITHMS, "register_adv_est")
AGGREGATIONS: Names = partial(compared, _ALGORITHMS, "agg_loss", "loss_agg_mode")
LOGGERS: Names = partial(listed, "utils/tracking.py", "supported_backend")
_STRATEGIES: Names = partial(registered, "workers/engine/fsdp/transformer_impl.py", "EngineRegistry.register")
_SCHEDULERS: Names = partial(
    compared, "workers/config/optimizer.py", "FSDPOptimizerConfig", "self.lr_scheduler_type"
)


def kl_estimators() -> frozenset[str]:
    """The estimators of the KL divergence; ``+`` after one takes its gradient from another."""
    names = compared(_ALGORITHMS, "kl_penalty_forward", "kl_penalty")
    return names | {f"{name}+" for name in names}


def losses() -> frozenset[str]:
    return registered(_ALGORITHMS, "register_policy_loss") | {MINIRL}


RAW_NAMES: Mapping[str, tuple[str, Names]] = {
    "actor_rollout_ref.actor.kl_loss_type": ("estimator of the KL divergence", kl_estimators),
    "algorithm.kl_penalty": ("estimator of the KL divergence", kl_estimators),
    "algorithm.kl_ctrl.type": (
        "controller of the KL penalty",
        partial(compared, _ALGORITHMS, "get_kl_controller", "kl_ctrl.type"),
    ),
    "algorithm.rollout_correction.loss_type": (
        "loss of rollout correction",
        partial(compared, _ALGORITHMS, "compute_policy_loss_bypass_mode", "loss_type"),
    ),
    "critic.loss_agg_mode": ("aggregation of losses", AGGREGATIONS),
    "actor_rollout_ref.actor.fsdp_config.strategy": ("strategy of FSDP", _STRATEGIES),
    "critic.strategy": ("strategy of FSDP", _STRATEGIES),
    "actor_rollout_ref.actor.optim.lr_scheduler_type": ("learning rate schedule", _SCHEDULERS),
    "actor_rollout_ref.actor.optim.warmup_style": ("learning rate schedule", _SCHEDULERS),
    "critic.optim.lr_scheduler_type": ("learning rate schedule", _SCHEDULERS),
    "critic.optim.warmup_style": ("learning rate schedule", _SCHEDULERS),
    "distillation.distillation_loss.loss_mode": (
        "distillation loss",
        partial(registered, "trainer/distillation/losses.py", "DistillationLossSettings"),
    ),
}
"""VeRL's keys whose values are names: what they name, and the names of the installed VeRL. Null is none."""
_OPTIMIZERS = ("actor_rollout_ref.actor.optim", "critic.optim")


def name_faults(recipe: Recipe) -> Iterator[tuple[KeyPath, str]]:
    # Then code of the user's own runs in VeRL's processes before names are looked up.
    if value_at(recipe.raw, "actor_rollout_ref.model.external_lib") or os.environ.get(
        "VERL_USE_EXTERNAL_MODULES"
    ):
        return
    default = AlgorithmSection()
    for key, kind, names in (
        ("name", "advantage estimator", ESTIMATORS),
        ("loss", "policy loss", losses),
        ("loss_aggregation", "aggregation of losses", AGGREGATIONS),
    ):
        value = getattr(recipe.algorithm, key)
        # A test checks the defaults, so that VeRL's longest file is read only where a recipe has other names.
        if value != getattr(default, key):
            yield from _fault(("algorithm", key), kind, value, names)
    for place, name in enumerate(recipe.trainer.loggers):
        yield from _fault(("trainer", "loggers", str(place)), "logger", name, LOGGERS)
    for path, value in map_values(recipe.raw):
        if entry := RAW_NAMES.get(dotted(path)):
            kind, names = entry
            yield from _fault(("verl", *path), kind, value, names)
    for section in _OPTIMIZERS:
        settings = value_at(recipe.raw, section)
        if isinstance(settings, Mapping) and settings.get("optimizer_impl", "torch.optim") == "torch.optim":
            optimizer_path = ("verl", *section.split("."), "optimizer")
            yield from _fault(optimizer_path, "optimizer", settings.get("optimizer"), torch_optimizers)


def _fault(path: KeyPath, kind: str, value: Any, names: Names) -> Iterator[tuple[KeyPath, str]]:
    """One sentence about a name that is not valid; nothing about a value that is not text or not known yet."""
    if not isinstance(value, str) or "${" in value:
        return
    known = names()
    if known and value not in known:
        same_letters = [name for name in known if name.lower() == value.lower()]
        hint = suggestion(
            same_letters[0] if same_letters else value, known, f" It has {', '.join(sorted(known))}."
        )
        yield path, f"`{dotted(path)}`: VeRL has no {kind} {value!r}.{hint}"


def value_at(tree: Any, key: str) -> Any:
    for part in key.split("."):
        tree = tree.get(part) if isinstance(tree, Mapping) else None
    return tree
