"""What a run on GPUs imports is there, on a machine whose torch says that it has some."""

import json
from pathlib import Path
from typing import Any

from aworld_train import recipe as recipes
from aworld_train.adapter.verl import task_runner
from aworld_train.adapter.verl.attention import VARLEN
from aworld_train.adapter.verl.compose import agent_file, compose
from aworld_train.recipe.device import device_of
from aworld_train.recipe.schema import Device
from tests import warm
from tests.golden_recipes import READY
from tests.locations import REPOSITORY

ON_GPUS = [name for name in READY if device_of(recipes.load(recipes.shipped()[name])) is Device.cuda]
PROGRAM = """
import importlib, json, sys
import torch

torch.cuda.is_available = lambda: True
torch.cuda.device_count = lambda: 8
torch.cuda.get_device_capability = lambda device=None: (9, 0)
for name in ("verl.trainer.main_ppo", "verl.workers.engine_workers", "verl.workers.rollout.replica"):
    importlib.import_module(name)
from verl.trainer.ppo.v1 import get_trainer_cls
from verl.utils.device import get_device_name, get_nccl_backend
from verl.workers.engine import EngineRegistry

given = json.loads(sys.argv[1])
for module in given["modules"]:
    importlib.import_module(module)
for module, name in given["names"]:
    getattr(importlib.import_module(module), name)
engine = EngineRegistry.get_engine_cls(model_type="language_model", backend=given["strategy"])
print(json.dumps([get_device_name(), get_nccl_backend(), engine.__name__, get_trainer_cls(given["trainer"]).__name__]))
"""


def test_all_that_the_composed_configurations_name_is_imported_for_cuda(tmp_path: Path) -> None:
    assert len(ON_GPUS) >= 4
    modules, names = {task_runner.__name__, task_runner._TRAINER_MODULE}, set[tuple[str, str]]()
    for recipe_name in ON_GPUS:
        # The attention that needs most modules.
        recipe = recipes.load(recipes.shipped()[recipe_name], [f"model.attention={VARLEN}"])
        composed: Any = compose(recipe, tmp_path)
        actor = composed["actor_rollout_ref"]
        modules.update(actor["model"]["external_lib"] or [])
        names.add(_split(actor["rollout"]["agent"]["agent_loop_manager_class"]))
        names.update(_split(loop["_target_"]) for loop in agent_file(recipe, tmp_path))
        names.add(_split(composed["ray_kwargs"]["ray_init"]["runtime_env"]["worker_process_setup_hook"]))
        for section in (
            composed["reward"]["custom_reward_function"],
            composed["trainer"]["v1"]["sampler"]["custom_sampler"],
        ):
            names.add((section["path"].removeprefix("pkg://"), section["name"]))
    given = {
        "modules": sorted(modules),
        "names": sorted(names),
        "strategy": actor["actor"]["strategy"],
        "trainer": composed["trainer"]["v1"]["trainer_mode"],
    }
    done = warm.run("-c", PROGRAM, json.dumps(given), timeout=200, cwd=REPOSITORY, kind=warm.LIBRARIES)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == [
        "cuda",
        "nccl",
        "FSDPEngineWithLMHead",
        "EpisodeTrainer",
    ]


def _split(name: str) -> tuple[str, str]:
    module, _, attribute = name.rpartition(".")
    return module, attribute
