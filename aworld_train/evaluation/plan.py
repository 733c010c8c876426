"""What an evaluation measures: model, agent, tasks and attempts, checked before anything starts.

A recipe says how its agent is trained; measuring needs only a part of it. Keys that only training uses have values that
fit together here, so they are no reason to refuse a recipe.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from aworld_train import recipe as recipes
from aworld_train.adapter.base import find, model_directory
from aworld_train.adapter.episodes.reference_agents import check_oracle
from aworld_train.agent import check_agent
from aworld_train.dataset import FileSummary, check_files
from aworld_train.errors import UsageError
from aworld_train.model.check import check_model
from aworld_train.recipe import LoadedRecipe
from aworld_train.recipe.env_text import shown
from aworld_train.recipe.interpolation import escape
from aworld_train.recipe.reward_checks import check_rewards
from aworld_train.recipe.reward_settings import reward_settings
from aworld_train.recipe.schema import EvalSection, MegatronSection
from aworld_train.recipe.tree import merge
from aworld_train.rollout.chat_client import EndpointAddress
from aworld_train.store.retention import parse_keep
from aworld_train.training.run_models import with_run_model

_SEED_BITS = 31  # what every engine takes
WITHOUT_TRAINING = (
    "trainer.method=rl",
    "trainer.mode=sync",
    "trainer.epochs=null",
    "trainer.steps=1",
    "trainer.batch_size=${rollout.tensor_parallel}",
    "trainer.minibatch_size=null",
    "trainer.microbatch_size=1",
    "trainer.dynamic_batches=false",
    "trainer.max_batch_tokens=null",
    "trainer.sequence_parallel=1",
    "trainer.strategy=fsdp2",
    *(f"trainer.megatron.{size}=1" for size in asdict(MegatronSection())),
    "trainer.offload=none",
    "trainer.loggers=[]",
    "algorithm.name=grpo",
    "algorithm.kl_coef=0",
    "algorithm.kl_reward_coef=0",
    "algorithm.rollout_correction=off",
    "model.lora.rank=0",
    "rollout.n=2",
    "rollout.top_p=1",
    "rollout.top_k=-1",
    "rollout.min_group=null",
    "cluster.launcher=local",
    "cluster.nodes=1",
    "cluster.gpus_per_node=${rollout.tensor_parallel}",
)
"""Overrides for the keys that only training uses."""


WITHOUT_TOOLS: dict[str, Any] = {
    "backend": "none",
    "docker_dir": None,
    "mcp_servers": None,
    "url": None,
    "token": None,
    "servers": [],
    "cassette": {"mode": "off"},
}
"""The section ``env`` for agents that use no tools."""


class AgentKind(StrEnum):
    """Who plays: the recipe's agent, one that knows the right answers, or one that says nothing."""

    recipe = "recipe"
    oracle = "oracle"
    null = "null"


@dataclass(frozen=True)
class PlannedAttempt:
    """An attempt that is to be made at the task in a ``row`` of the dataset files; greedy without a seed."""

    row: int
    number: int
    seed: int | None

    @property
    def key(self) -> str:
        """What the store calls it."""
        return f"{self.row}_{self.number}"


@dataclass(frozen=True)
class EvalPlan:
    """A checked evaluation; without an ``endpoint`` the recipe's model, or the checkpoint, is loaded.

    What the endpoint says is kept in the file of ``answers``, and taken from there.
    """

    loaded: LoadedRecipe
    endpoint: EndpointAddress | None
    agent: AgentKind
    data: FileSummary
    tasks: int
    checkpoint: Path | None = None
    answers: Path | None = None

    @property
    def section(self) -> EvalSection:
        return self.loaded.recipe.eval

    @property
    def model(self) -> str:
        """The name of the model, or of the agent that needs none."""
        if self.agent is not AgentKind.recipe:
            return self.agent.value
        return self.endpoint.model if self.endpoint else shown(self.loaded.recipe.model.location or "")

    @property
    def prices(self) -> Mapping[str, float] | None:
        """The prices of a million tokens of the model, ``input`` and ``output``; None if the recipe has none."""
        prices = self.section.prices.get(self.model)
        return {name: float(prices.get(name, 0.0)) for name in ("input", "output")} if prices else None

    def sampling_params(self, attempt: PlannedAttempt) -> dict[str, Any]:
        section = self.section
        params = {"temperature": section.temperature, "top_p": section.top_p, "top_k": section.top_k}
        return params | {"seed": attempt.seed}

    def attempts(self) -> list[PlannedAttempt]:
        """All attempts: the first at every task, then the second, and so on, so that a part of them tells most."""
        return [
            PlannedAttempt(row, number, self._seed(row, number))
            for number in range(self.section.attempts)
            for row in range(self.tasks)
        ]

    def to_json(self) -> dict[str, Any]:
        section = self.section
        return {
            "model": self.model,
            "model_url": self.endpoint.url if self.endpoint else None,
            "dataset": [shown(file) for file in self.loaded.recipe.dataset.val_files],
            "tasks": self.tasks,
            **{name: getattr(section, name) for name in _KEPT},
            "agent": self.agent.value,
            "prices": self.prices,
        }

    def _seed(self, row: int, number: int) -> int | None:
        if self.section.temperature == 0:
            return None
        digest = hashlib.sha256(f"{self.section.seed} {row} {number}".encode()).digest()
        return int.from_bytes(digest[:4], "big") >> (32 - _SEED_BITS)


_KEPT = ("attempts", "temperature", "top_p", "top_k", "seed", "concurrency")


def plan_evaluation(
    source: recipes.loading.Source,
    overrides: Sequence[str] = (),
    *,
    checkpoint: Path | None = None,
    endpoint: EndpointAddress | None = None,
    dataset: Sequence[Path] = (),
    limit: int = -1,
    agent: AgentKind = AgentKind.recipe,
) -> EvalPlan:
    """Check an evaluation of at most ``limit`` tasks, -1 for all, of the recipe's ``dataset.val`` or of ``dataset``.

    ``checkpoint`` is a Hugging Face model directory, checkpoint or run folder, in place of ``model.path``.
    """
    loaded = recipes.read(source, [*overrides, *WITHOUT_TRAINING])
    recipe = loaded.recipe
    changes: dict[str, Any] = {}
    if checkpoint is not None:
        changes["model"] = {
            "path": escape(str(model_directory(checkpoint, find(recipe.trainer.framework)))),
            "hub": None,
        }
    if dataset:
        changes["dataset"] = {"val": [escape(str(file)) for file in dataset]}
    if agent is not AgentKind.recipe:
        changes["env"] = WITHOUT_TOOLS
    if changes:
        loaded = recipes.read(merge(loaded.unresolved, changes))
        recipe = loaded.recipe
    if endpoint is None and agent is AgentKind.recipe:
        recipe = with_run_model(recipe)
        loaded = replace(loaded, recipe=recipe)
    _check_agent(loaded, endpoint, agent)
    files = recipe.dataset.val_files
    if not files:
        raise UsageError(
            f"The recipe {recipe.name} has no dataset to measure on: set dataset.val, or name one with --dataset."
        )
    data = check_files(files)
    check_rewards(recipe, data.scorers, data.answer_schemas)
    if agent is AgentKind.oracle:
        check_oracle(reward_settings(recipe), data.scorers)
    if limit < -1 or limit == 0:
        raise UsageError(f"--limit is {limit}: it has to be -1 (all tasks) or at least 1.")
    tasks = data.rows if limit < 0 else min(limit, data.rows)
    return EvalPlan(loaded, endpoint, agent, data, tasks, checkpoint)


def _check_agent(loaded: LoadedRecipe, endpoint: EndpointAddress | None, agent: AgentKind) -> None:
    recipe = loaded.recipe
    if not parse_keep(recipe.store.keep).is_on:
        raise UsageError(
            "An evaluation keeps every attempt in its store, and store.keep is off. Set store.keep=failures to keep "
            "the texts of those that failed, and the figures of all."
        )
    if agent is not AgentKind.recipe:
        return
    check_agent(asdict(recipe.agent))
    if endpoint is None:
        check_model(recipe.model.location)
