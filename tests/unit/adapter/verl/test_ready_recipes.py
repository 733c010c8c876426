"""The ready recipes are configurations that VeRL itself takes, and stay what they are."""

from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from aworld_train import recipe as recipes
from aworld_train.adapter.verl.compose import compose
from tests.golden_recipes import FOLDER, READY, SUPERVISED, TRAINED, golden


@pytest.mark.parametrize("name", TRAINED)
def test_a_ready_recipe_composes_to_its_golden_file(name: str) -> None:
    file = FOLDER / f"{name}.yaml"
    assert golden(name) == file.read_text(encoding="utf-8"), "see tests/golden_recipes.py"


def test_every_golden_file_has_its_recipe() -> None:
    files = FOLDER.rglob("*.yaml")
    assert sorted(file.relative_to(FOLDER).with_suffix("").as_posix() for file in files) == sorted(TRAINED)


@pytest.mark.parametrize("name", SUPERVISED)
def test_verl_builds_what_a_supervised_recipe_composes(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VERL_PLATFORM", "cpu")
    from verl.utils.config import omega_conf_to_dataclass
    from verl.workers.config import FSDPEngineConfig, FSDPOptimizerConfig

    recipe = recipes.load(name)
    composed: Any = OmegaConf.create(compose(recipe, tmp_path))
    engine, optimizer = omega_conf_to_dataclass(composed.engine), omega_conf_to_dataclass(composed.optim)
    assert isinstance(engine, FSDPEngineConfig) and isinstance(optimizer, FSDPOptimizerConfig)
    assert (engine.strategy, optimizer.lr) == ("fsdp2", recipe.trainer.lr)


@pytest.mark.parametrize("name", READY)
def test_verl_s_own_check_takes_a_ready_recipe(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """VeRL counts GPUs by the configuration alone, so that this needs none."""
    monkeypatch.setenv("VERL_PLATFORM", "cpu")
    from verl.trainer.config import AlgoConfig
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import omega_conf_to_dataclass, validate_config
    from verl.workers.config import FSDPActorConfig, RolloutConfig

    # What VeRL asks about LoRA is vLLM's own list of ranks, and vLLM needs a GPU's profile.
    composed: Any = OmegaConf.create(
        compose(recipes.load(recipes.shipped()[name], ["model.lora.rank=0"]), tmp_path)
    )
    assert not need_critic(composed)
    validate_config(composed, use_reference_policy=need_reference_policy(composed), use_critic=False)
    actor = omega_conf_to_dataclass(composed.actor_rollout_ref.actor)
    rollout = omega_conf_to_dataclass(composed.actor_rollout_ref.rollout)
    algorithm = omega_conf_to_dataclass(composed.algorithm)
    assert isinstance(actor, FSDPActorConfig) and isinstance(rollout, RolloutConfig)
    assert isinstance(algorithm, AlgoConfig)
    assert actor.fsdp_config.ulysses_sequence_parallel_size == actor.ulysses_sequence_parallel_size
    gpus = composed.trainer.nnodes * composed.trainer.n_gpus_per_node
    assert gpus % rollout.tensor_model_parallel_size == 0
