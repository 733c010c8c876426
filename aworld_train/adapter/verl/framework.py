"""VeRL as a training framework: ``main_ppo`` on a private Ray, with the configuration composed from a recipe."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from aworld_train.adapter.base import LoadedModel, RunPlan, StartFiles
from aworld_train.adapter.verl import checkpoints, log, recipe_checks, recipe_keys
from aworld_train.adapter.verl.attention import attention_remarks
from aworld_train.adapter.verl.command import (
    WITHOUT_FIRST_VALIDATION,
    cluster_environment,
    verl_command,
    verl_environment,
)
from aworld_train.adapter.verl.compose import AGENT_FILE, CONFIG_FILE, agent_file, compose, joins_cluster
from aworld_train.adapter.verl.memory_plan import memory_plan
from aworld_train.adapter.verl.metrics import step_rows
from aworld_train.adapter.verl.owned_keys import OWNED_KEYS
from aworld_train.adapter.verl.private_folder import PrivateFolder
from aworld_train.adapter.verl.sft_main import VALIDATED, sft_command
from aworld_train.adapter.verl.trackers import tracker_environment
from aworld_train.recipe.schema import Method, Recipe

_RENDEZVOUS = "rendezvous"
"""The folder in a run folder in which ranks on several machines find each other."""


class VerlFramework:
    """Implements ``TrainingFramework``. Creating an instance imports neither VeRL nor torch."""

    name = "verl"
    packages = ("verl", "torch", "ray", "transformers", "TransferQueue", "vllm")
    owned_keys: Mapping[str, str] = OWNED_KEYS

    recipe_from = staticmethod(recipe_keys.recipe_from)
    faults = staticmethod(recipe_checks.faults)
    composed = staticmethod(compose)
    memory_plan = staticmethod(memory_plan)
    errors_in = staticmethod(log.errors_in)
    start_failed = staticmethod(log.start_failed)
    is_transient = staticmethod(log.is_transient)
    step_rows = staticmethod(step_rows)
    last_checkpoint = staticmethod(checkpoints.last_checkpoint)
    prepare_resume = staticmethod(checkpoints.prepare_resume)
    model_in = staticmethod(checkpoints.model_in)
    extract_model = staticmethod(checkpoints.extract_model)
    checkpoints = staticmethod(checkpoints.stored)

    def compile(self, recipe: Recipe, folder: Path) -> RunPlan:
        # What plays and scores episodes is imported only where a run needs it, not to check a recipe.
        from aworld_train.adapter.episodes.files import episode_files, to_yaml

        def environment(start: StartFiles) -> Mapping[str, str]:
            trackers = tracker_environment(recipe, folder)
            if joins_cluster(recipe):
                rendezvous = folder.resolve() / _RENDEZVOUS
                return cluster_environment(recipe, start.metrics, rendezvous, trackers=trackers)
            private = PrivateFolder(start.private)
            private.fill()
            return verl_environment(recipe, start.metrics, private, start.nodes, trackers=trackers)

        config = compose(recipe, folder)
        plan = RunPlan(
            files={CONFIG_FILE: to_yaml(config)},
            config=CONFIG_FILE,
            command=[*sft_command(folder), *(() if recipe.trainer.val_ends else (VALIDATED,))],
            environment=environment,
            without_first_validation=(VALIDATED,),
            remarks=[*attention_remarks(recipe)],
        )
        if recipe.trainer.method is Method.sft:
            return plan
        return replace(
            plan,
            files={**plan.files, AGENT_FILE: to_yaml(agent_file(recipe, folder)), **episode_files(recipe)},
            command=verl_command(folder),
            without_first_validation=WITHOUT_FIRST_VALIDATION,
            template_options=self.template_options(config),
        )

    def template_options(self, composed: Mapping[str, Any]) -> Mapping[str, Any]:
        return composed["data"].get("apply_chat_template_kwargs") or {}

    def load_model(self, recipe: Recipe, folder: Path, *, model_url: str | None) -> LoadedModel:
        _prepare_process(recipe, folder)
        from aworld_train.adapter.verl.single_model import VerlLoadedModel

        return VerlLoadedModel(recipe, folder, model_url)

    def trained_logprobs(
        self, recipe: Recipe, folder: Path, samples: Sequence[tuple[Sequence[int], Sequence[int]]]
    ) -> list[list[float]]:
        _prepare_process(recipe, folder)
        from aworld_train.adapter.verl.trained_logprobs import trained_logprobs

        return trained_logprobs(recipe, samples)


def _prepare_process(recipe: Recipe, folder: Path) -> None:
    """Set the variables of this process that VeRL reads when it is imported."""
    private = PrivateFolder(folder / "private")
    private.fill()
    os.environ |= verl_environment(recipe, folder / "metrics.jsonl", private)
