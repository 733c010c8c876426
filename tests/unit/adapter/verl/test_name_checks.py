"""Names in a recipe are those that VeRL knows when it runs, read from its source."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from aworld_train import recipe as recipes
from aworld_train.adapter.base import framework_of, recipe_faults
from aworld_train.adapter.verl import schema
from aworld_train.adapter.verl.name_checks import (
    AGGREGATIONS,
    ESTIMATORS,
    LOGGERS,
    RAW_NAMES,
    losses,
    value_at,
)
from aworld_train.adapter.verl.registries import compared, registered
from aworld_train.errors import RecipeError
from aworld_train.recipe.presets import MINIRL
from aworld_train.recipe.schema import AlgorithmSection
from aworld_train.recipe.tree import merge, nested

pytestmark = pytest.mark.skipif(find_spec("verl") is None, reason="needs the extra cpu or gpu")

GPU = {"model": {"path": "org/model"}, "rollout": {"engine": "vllm"}}


def refusal(*overrides: str, base: Any = GPU) -> str:
    with pytest.raises(RecipeError) as caught:
        framework_of(recipes.load(base, overrides))
    return caught.value.message


def test_the_names_are_those_of_verl_s_own_registries() -> None:
    from verl.trainer.ppo import core_algos
    from verl.utils.tracking import Tracking

    assert ESTIMATORS() == {str(getattr(name, "value", name)) for name in core_algos.ADV_ESTIMATOR_REGISTRY}
    assert losses() == set(core_algos.POLICY_LOSS_REGISTRY) | {MINIRL}
    assert LOGGERS() == set(Tracking.supported_backend)


def test_every_aggregation_and_estimate_of_kl_that_was_read_can_be_computed() -> None:
    import torch
    from verl.trainer.ppo import core_algos

    values = torch.ones(2, 3)
    for name in AGGREGATIONS():
        core_algos.agg_loss(values, values, name)
    for name in RAW_NAMES["algorithm.kl_penalty"][1]():
        core_algos.kl_penalty(values, values, name)
    with pytest.raises(ValueError, match="Invalid loss_agg_mode"):
        core_algos.agg_loss(values, values, "token-average")


@pytest.mark.parametrize("key", RAW_NAMES)
def test_verl_s_default_is_one_of_the_names_that_were_read(key: str) -> None:
    defaults = schema.resolve(
        merge(schema.default_config(), nested(("actor_rollout_ref", "rollout", "name"), "vllm"))
    )
    names = RAW_NAMES[key][1]()
    assert len(names) > 1
    assert value_at(defaults, key) in {*names, None}


def test_the_recipe_s_own_defaults_are_names_of_verl() -> None:
    assert AlgorithmSection().name in ESTIMATORS()
    assert AlgorithmSection().loss_aggregation in AGGREGATIONS()
    assert {"console", "file"} <= LOGGERS()


@pytest.mark.parametrize(
    ("override", "meant"),
    [
        ("algorithm.name=grop", "grpo"),
        ("algorithm.name=reinforce++", "reinforce_plus_plus"),
        ("algorithm.loss_aggregation=token_mean", "token-mean"),
        ("trainer.loggers=[wandbb]", "wandb"),
        ("algorithm.loss=gsp", "gspo"),
        ("verl.actor_rollout_ref.actor.kl_loss_type=ABS", "abs"),
        ("verl.algorithm.kl_penalty=low_var", "low_var_kl"),
        ("verl.algorithm.kl_ctrl.type=adaptiv", "adaptive"),
        ("verl.algorithm.rollout_correction.loss_type=reinforc", "reinforce"),
        ("verl.critic.strategy=fsdpp", "fsdp"),
        ("verl.actor_rollout_ref.actor.optim.lr_scheduler_type=cosin", "cosine"),
        ("verl.actor_rollout_ref.actor.optim.optimizer=Adamw", "AdamW"),
        ("verl.distillation.distillation_loss.loss_mode=forward_kl", "forward_kl_topk"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest(override: str, meant: str) -> None:
    message = refusal(override)
    key = override.partition("=")[0]
    assert key in message
    assert f"Did you mean {meant!r}?" in message


def test_a_name_like_no_other_is_refused_with_all() -> None:
    assert "VeRL has no advantage estimator 'zzz'. It has gae, gdpo," in refusal("algorithm.name=zzz")


def test_all_unknown_names_are_named_at_once() -> None:
    recipe = recipes.load(
        GPU, ["algorithm.name=grop", "trainer.loggers=[wandb,tensorbord]", "verl.critic.strategy=x"]
    )
    assert [path for path, _ in recipe_faults(recipe)] == [
        ("algorithm", "name"),
        ("trainer", "loggers", "1"),
        ("verl", "critic", "strategy"),
    ]


@pytest.mark.parametrize(
    "override",
    [
        "algorithm.name=rloo",
        "algorithm.loss_aggregation=seq-mean-token-sum",
        "trainer.loggers=[wandb,tensorboard]",
        "algorithm.loss=gspo",
        "verl.algorithm.kl_penalty=k3+",
        "verl.algorithm.rollout_correction.loss_type=ppo_clip",
        "verl.actor_rollout_ref.actor.optim.optimizer=SGD",
    ],
)
def test_a_name_that_verl_knows_passes(override: str) -> None:
    framework_of(recipes.load(GPU, [override]))


def test_names_that_a_user_s_code_registers_are_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    own = ["algorithm.name=mine", "verl.actor_rollout_ref.model.external_lib=my.module"]
    framework_of(recipes.load(GPU, own))
    assert "external_lib cannot be set" in refusal(*own, base={"model": {"path": "org/model"}})
    monkeypatch.setenv("VERL_USE_EXTERNAL_MODULES", "my.module")
    framework_of(recipes.load(GPU, own[:1]))


def test_each_form_in_which_a_name_is_written_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aworld_train.adapter.verl.registries.verl_folder", lambda: tmp_path)
    (tmp_path / "forms_of_names.py").write_text(
        "class Kind(str, Enum):\n    A = 'a'\n\n"
        "@add(Kind.A)\ndef f(): ...\n@add('b', backend=['c', 'd'])\ndef g(mode):\n"
        "    if mode == 'x':\n        return 1\n    elif mode in ('y', 'z'):\n        return 2\n"
        "    if mode == 'no':\n        raise ValueError\n"
    )
    assert registered("forms_of_names.py", "add") == {"a", "b", "c", "d"}
    assert compared("forms_of_names.py", "g", "mode") == {"x", "y", "z"}


def test_reading_names_imports_neither_verl_nor_torch() -> None:
    script = (
        "import sys\n"
        "from aworld_train.adapter.verl import name_checks\n"
        "for _, names in name_checks.RAW_NAMES.values(): assert names()\n"
        "name_checks.torch_optimizers()\n"
        "print(sorted({'verl', 'torch', 'ray', 'transformers'} & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"
