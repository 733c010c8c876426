"""Plays a task to its end, whatever fails on the way, and decides how its tokens are used.

Sampling goes through the framework's engine, tokens in and tokens out. An episode gives one row per path of its
conversation graph: a history that only grew is one row, and a context reset or a second agent adds another.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from aworld_train.adapter.episodes.agent import EpisodeAgent, McpAgent
from aworld_train.adapter.episodes.record import current_record
from aworld_train.adapter.episodes.settings import EpisodeSettings
from aworld_train.dataset.schema import IMAGES
from aworld_train.env import health_url
from aworld_train.episode.message import Message
from aworld_train.episode.outcome import Outcome, Treatment
from aworld_train.errors import one_line
from aworld_train.recipe.schema import AGENT_KINDS
from aworld_train.rollout.chat_episode import ChatEpisode
from aworld_train.rollout.chat_model import ChatModel
from aworld_train.rollout.episode import Episode, EpisodeLimits
from aworld_train.rollout.episode_clock import EpisodeClock
from aworld_train.rollout.episode_result import EpisodeResult
from aworld_train.rollout.graph import Row
from aworld_train.rollout.messages import RequestRefused
from aworld_train.rollout.model import LanguageModel
from aworld_train.rollout.outcome import EngineLost, EpisodeFailure, ToolsBroken
from aworld_train.rollout.token_episode import TokenEpisode
from aworld_train.rollout.tool_record import ToolCounts
from aworld_train.rollout.tools import wait_until_healthy
from aworld_train.waits import waiting

_SUPERVISOR_SECONDS = 15.0  # how long the supervisor may take to end a run whose environment is lost
# An episode that lost its environment or its engine is played once more, if these come back.
_MAX_ATTEMPTS = 2
_NEVER_ASKED = "the agent ended without asking the model in training, which is at the address of its episode"


@dataclass(frozen=True)
class FinishedEpisode:
    """A finished episode, ready for a training framework.

    Rows come with their agent, in the order of the conversation; there are none for an episode that is dropped, nor
    where the model's tokens are not known. Rows of an episode that only counts in its group's baseline have a mask of
    zeros.
    """

    result: EpisodeResult
    rows: list[tuple[str, Row]]
    treatment: Treatment
    query: str
    asks_model: bool = True

    @property
    def is_scored(self) -> bool:
        """Whether it is to be scored: it is not dropped, and the model was asked if the agent asks one."""
        was_played = self.result.episode.turns > 0 or not self.asks_model
        return was_played and self.treatment is not Treatment.dropped


class EpisodePlayer:
    def __init__(self, settings: EpisodeSettings, agent: EpisodeAgent | None = None):
        self.settings = settings
        self.agent = agent or episode_agent(settings)

    async def play(
        self,
        model: LanguageModel | ChatModel,
        task: Mapping[str, Any],
        sampling_params: Mapping[str, Any],
        *,
        model_name: str,
        max_prompt_tokens: int,
        max_response_tokens: int,
    ) -> FinishedEpisode:
        """Play a row of a dataset, whose messages are under ``raw_prompt``, and record it (see ``current_record``)."""
        uris = (task.get("extra_info") or {}).get(IMAGES)
        # May be an array, which has no truth value.
        images = () if uris is None else list(uris)
        messages = [Message.read(message, images) for message in task["raw_prompt"]]
        if prompt := self.settings.agent["system_prompt"]:
            messages.insert(0, Message("system", prompt))
        record = current_record()
        limits = self.settings.limits(sampling_params, prompt=max_prompt_tokens, response=max_response_tokens)
        began = time.monotonic()
        result = await self._play_until_over(model, limits, messages, task, model_name)
        treatment = self.settings.treatment(result.outcome)
        rows = result.episode.rows(self.settings.agent["trainable"])
        record.finish(result, rows, treatment, time.monotonic() - began)
        if treatment is Treatment.dropped:
            rows = []
        if treatment is Treatment.masked:
            rows = [(agent, replace(row, mask=[0] * len(row.mask))) for agent, row in rows]
        query = "\n".join(message.content for message in messages if message.role == "user")
        return FinishedEpisode(result, rows, treatment, query, self.agent.asks_model)

    async def _play_until_over(
        self,
        model: LanguageModel | ChatModel,
        limits: EpisodeLimits,
        messages: list[Message],
        task: Mapping[str, Any],
        model_name: str,
    ) -> EpisodeResult:
        for attempt in range(1, _MAX_ATTEMPTS + 1):
            result = EpisodeResult(_episode(model, limits), ToolCounts(), Outcome.infrastructure)
            await self._play_once(messages, task, result, model_name)
            if attempt == _MAX_ATTEMPTS or not await self._can_play_again(result):
                break
        return result

    async def _can_play_again(self, result: EpisodeResult) -> bool:
        """Whether the episode has lost its engine, of which there is another, or its environment, which came back."""
        lost_engine = isinstance(result.episode.failure, EngineLost)
        if not lost_engine and result.outcome is not Outcome.environment:
            return False
        current_record().lost(result)
        if lost_engine:
            return True
        # Longer than the run's supervisor waits: a step must not go on with the episodes that needed no tool.
        timeout = self.settings.env["recovery_timeout"] + _SUPERVISOR_SECONDS
        return await wait_until_healthy(health_url(self.agent.server.url), timeout)

    async def _play_once(
        self, messages: list[Message], task: Mapping[str, Any], result: EpisodeResult, model_name: str
    ) -> None:
        seconds, queue_seconds = self.settings.agent["episode_timeout"], self.settings.env["queue_timeout"]
        episode, clock = result.episode, EpisodeClock(seconds, queue_seconds)
        try:
            with waiting("episode"):
                async with clock:
                    result.answer = await self.agent.play(messages, task, result, model_name)
            if not self.agent.asks_model:
                result.outcome, result.cause = Outcome.answered, None
            else:
                result.outcome = episode.outcome_of(result.answer)
                result.cause = (
                    str(episode.failure) if episode.failure else _NEVER_ASKED if not episode.turns else None
                )
        except TimeoutError as error:
            if not clock.expired:
                result.outcome, result.cause = Outcome.infrastructure, one_line(error)
            elif clock.ended_waiting:
                result.outcome = Outcome.environment
                result.cause = f"no tool worker was free within {queue_seconds:g} seconds (env.queue_timeout)"
            elif episode.failure is not None:
                result.outcome, result.cause = episode.failure.outcome, str(episode.failure)
            elif episode.model_seconds > seconds / 2 and not result.tools.was_calling:
                result.outcome = Outcome.provider
                result.cause = f"the engine took {episode.model_seconds:.0f} of {seconds:g} seconds"
            else:
                result.outcome, result.cause = Outcome.timeout, f"not over after {seconds:g} seconds"
        except RequestRefused as refused:
            result.outcome, result.cause = episode.outcome, str(episode.failure or refused)
        except EpisodeFailure as failure:
            # The program is not at fault if it fails after the engine did, or because a limit was reported to it.
            excused = failure.outcome is Outcome.agent and episode.stopped
            result.outcome = episode.outcome if excused else failure.outcome
            result.cause = str(episode.failure or failure)
            if isinstance(failure, ToolsBroken):
                result.answer = ""  # what it said before does not count
        except Exception as error:
            result.outcome, result.cause = Outcome.infrastructure, one_line(error)
        episode.over.set()


def _episode(model: LanguageModel | ChatModel, limits: EpisodeLimits) -> Episode:
    if isinstance(model, ChatModel):
        return ChatEpisode(model, limits)
    return TokenEpisode(model, limits)


def episode_agent(settings: EpisodeSettings) -> EpisodeAgent:
    if any(settings.agent[kind] for kind in AGENT_KINDS):
        # Imports the gateways' servers, which the package's own agent does not need.
        from aworld_train.adapter.episodes.external_agent import ExternalAgent

        return ExternalAgent(settings)
    return McpAgent(settings)


def episode_facts(finished: FinishedEpisode) -> dict[str, Any]:
    result = finished.result
    return {
        "assistant_text": result.answer,
        "query": finished.query,
        "outcome": result.outcome.value,
        "tool_call_count": result.tools.calls,
        "tool_error_count": result.tools.errors,
    }
