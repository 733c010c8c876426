"""How episodes are played: ``episodes.yaml`` is written from the recipe and read once by each process that plays."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from aworld_train.adapter.episodes.groups import min_group
from aworld_train.adapter.episodes.paths import absolute_argument, absolute_function, absolute_path
from aworld_train.episode.outcome import Outcome, Treatment
from aworld_train.recipe.interpolation import resolved
from aworld_train.recipe.output import written
from aworld_train.recipe.paths import whole_path
from aworld_train.recipe.schema import EnvBackend, Recipe, Requests, SmallGroup
from aworld_train.recipe.tree import mapped
from aworld_train.rollout.cassette import Cassette, NoTools, open_cassette
from aworld_train.rollout.context import ContextSettings
from aworld_train.rollout.endpoint import Endpoint, Failover
from aworld_train.rollout.episode import EpisodeLimits
from aworld_train.rollout.model import SamplingParams
from aworld_train.rollout.repetition import RepetitionLimits

_NO_TOOLS = NoTools()


@dataclass(frozen=True)
class EpisodeSettings:
    """How episodes are played; a group with fewer healthy ones than ``replay_below`` plays the others again."""

    agent: Mapping[str, Any]
    env: Mapping[str, Any]
    treatments: Mapping[str, str]
    repetition: RepetitionLimits
    context: ContextSettings
    replay_below: int
    store: Mapping[str, Any]

    @property
    def cassette(self) -> Cassette | None:
        """The cassette that records or replays tool calls; all episodes of a process share it."""
        return open_cassette(**self.env["cassette"]) if self.env["has_tools"] else _NO_TOOLS

    def treatment(self, outcome: Outcome) -> Treatment:
        return Treatment(self.treatments[outcome.value])

    def limits(self, sampling_params: Mapping[str, Any], *, prompt: int, response: int) -> EpisodeLimits:
        return EpisodeLimits(
            max_turns=self.agent["max_turns"],
            max_prompt_tokens=prompt,
            max_response_tokens=response,
            sampling=SamplingParams(
                float(sampling_params.get("temperature", 1.0)),
                float(sampling_params.get("top_p", 1.0)),
                int(sampling_params.get("top_k", -1)),
                seed=sampling_params.get("seed"),
            ),
            strict_requests=self.agent["requests"] == Requests.strict.value,
            repetition=self.repetition,
            context=self.context,
        )


def episode_settings(recipe: Recipe) -> dict[str, Any]:
    agent, cassette = recipe.agent, recipe.env.cassette
    settings: dict[str, Any] = written(
        {
            "agent": {
                **_plain(asdict(agent)),
                "command": [absolute_argument(part) for part in agent.command],
                "builder": absolute_function(agent.builder) if agent.builder else None,
                "loop": absolute_function(agent.loop) if agent.loop else None,
                "aworld": absolute_path(agent.aworld),
            },
            "env": {
                "has_tools": recipe.env.backend is not EnvBackend.none,
                "servers": list(recipe.env.servers),
                "queue_timeout": recipe.env.queue_timeout,
                "recovery_timeout": recipe.env.recovery_timeout,
                "cassette": {
                    "mode": cassette.mode.value,
                    "path": whole_path(cassette.path) if cassette.path else None,
                    "rules": cassette.rules,
                },
            },
            "treatments": _plain(asdict(recipe.rollout.treatment)),
            "endpoints": _plain(recipe.endpoints),
            "replay_below": min_group(recipe) if recipe.rollout.small_group is SmallGroup.resample else 0,
            "store": {"keep": recipe.store.keep, "redact": list(recipe.store.redact)},
        }
    )
    return settings


@lru_cache(maxsize=4)
def read_settings(file: str) -> EpisodeSettings:
    return settings_from(yaml.safe_load(Path(file).read_text(encoding="utf-8")))


def settings_from(data: Mapping[str, Any]) -> EpisodeSettings:
    data = resolved(data)
    agent = data["agent"]
    endpoints = {name: Endpoint.read(name, description) for name, description in data["endpoints"].items()}
    context = agent["context"]
    summarizer, condensers = context["summarizer"], context["condensers"]
    return EpisodeSettings(
        agent=agent,
        env=data["env"],
        treatments=data["treatments"],
        repetition=RepetitionLimits(**agent["repetition"]),
        context=ContextSettings(
            policy=None if context["policy"] == "off" else context["policy"],
            budget=context["budget"] or 0,
            keep=context["keep"],
            summarizer=endpoints[summarizer].ask if summarizer else None,
            condense_over=context["condense_over"],
            condenser=Failover([endpoints[name] for name in condensers]).ask if condensers else None,
        ),
        replay_below=data["replay_below"],
        store=data["store"],
    )


def _plain(tree: Any) -> Any:
    return mapped(tree, lambda value: value.value if isinstance(value, Enum) else value)
