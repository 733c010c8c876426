"""Episodes inside VeRL: what every agent loop of ours does around an agent, and ``mcp_agent``, the ReAct loop.

VeRL makes one loop object per episode, hands over a task and takes back token rows: one per path of the episode's
conversation graph, so a history that only grew is one row, and a context reset or a second agent adds another. Sampling
goes through VeRL's ``server_manager.generate``, tokens in and tokens out.
"""

import asyncio
import os
import time
from abc import abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from verl.experimental.agent_loop.agent_loop import AgentLoopBase

from aworld_train.adapter.episodes.record import current_episode
from aworld_train.adapter.episodes.settings import read_settings
from aworld_train.adapter.verl.language_model import VerlModel
from aworld_train.adapter.verl.rows import output_rows
from aworld_train.env import health_url
from aworld_train.recipe.schema import EpisodeUse
from aworld_train.rollout.cassette import RecordedTools
from aworld_train.rollout.episode import Episode
from aworld_train.rollout.messages import Message, RequestRefused
from aworld_train.rollout.outcome import EpisodeFailure, Outcome
from aworld_train.rollout.react import ToolCounts, play
from aworld_train.rollout.tools import ToolServer, wait_until_healthy

_SUPERVISOR_SECONDS = 15.0  # how long the supervisor may take to end a run whose environment is lost
_ATTEMPTS = 2  # an episode whose environment went away is played once more, if the environment comes back


@dataclass
class EpisodeResult:
    """An episode that is over.

    Attributes:
        episode: What was said at the language model's boundary.
        tools: What was called.
        outcome: How it ended.
        answer: What the reward is given for.
        cause: Why it failed, if it did.
    """

    episode: Episode
    tools: ToolCounts
    outcome: Outcome
    answer: str = ""
    cause: str | None = None


class EpisodeLoop(AgentLoopBase):  # type: ignore[misc]
    """Plays one task with some agent.

    ``settings`` names the file that says how. The tools' endpoint and its token come from ``MCP_SERVER_URL`` and
    ``MCP_SERVER_TOKEN``, so that no file holds the token.
    """

    def __init__(self, *args: Any, settings: str, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.settings = read_settings(settings)
        agent = self.settings.agent
        self.server = _tool_server(
            agent["tool_timeout"], agent["episode_timeout"], list(self.settings.env["servers"])
        )

    @abstractmethod
    async def play(self, messages: list[Message], task: dict[str, Any], played: EpisodeResult) -> str:
        """Let the agent work on a task; returns its answer.

        ``played`` is to be true at every await, so that an episode that is stopped is told truly.

        Raises:
            Refused: the model had no more to say.
            EpisodeFailure: what went wrong.
        """

    async def run(self, sampling_params: dict[str, Any], **task: Any) -> list[Any]:
        """Play the task and return its rows; none for an episode that must not be trained on."""
        messages = [Message.read(message) for message in task["raw_prompt"]]
        if prompt := self.settings.agent["system_prompt"]:
            messages.insert(0, Message("system", prompt))
        began = time.monotonic()
        model = VerlModel(
            self.server_manager,
            self.tokenizer,
            self.settings.agent["tool_parser"],
            self.apply_chat_template_kwargs,
            _end_tokens(str(self.config.actor_rollout_ref.get("model", {}).get("path", ""))),
        )
        played = await self._play_until_over(model, sampling_params, messages, task)
        treatment = self.settings.treatment(played.outcome)
        rows = played.episode.rows(self.settings.agent["trainable"])
        record = current_episode()
        record.finish(played, rows, treatment, time.monotonic() - began)
        if treatment is EpisodeUse.dropped or not rows:
            return []
        asked = "\n".join(message.content for message in messages if message.role == "user")
        record.outputs = output_rows(played, rows, model, asked, masked=treatment is EpisodeUse.masked)
        return record.outputs

    async def _play_until_over(
        self,
        model: VerlModel,
        sampling_params: dict[str, Any],
        messages: list[Message],
        task: dict[str, Any],
    ) -> EpisodeResult:
        """Play until there is an outcome; again, from the start, if the environment was lost and came back."""
        limits = self.settings.limits(
            sampling_params,
            validating=current_episode().validate,
            prompt=self.rollout_config.prompt_length,
            response=self.rollout_config.response_length,
        )
        for attempt in range(1, _ATTEMPTS + 1):
            played = EpisodeResult(Episode(model, limits), ToolCounts(), Outcome.infrastructure)
            await self._play_once(messages, task, played)
            if played.outcome is not Outcome.environment or attempt == _ATTEMPTS:
                break
            current_episode().lost(played.cause or "")
            # Longer than the run's supervisor waits: a step must not go on with the episodes that needed no tool.
            patience = self.settings.env["recovery_timeout"] + _SUPERVISOR_SECONDS
            if not await wait_until_healthy(health_url(self.server.url), patience):
                break
        return played

    async def _play_once(self, messages: list[Message], task: dict[str, Any], played: EpisodeResult) -> None:
        """Play and say how it ended, whatever happens."""
        seconds = self.settings.agent["episode_timeout"]
        episode = played.episode
        try:
            async with asyncio.timeout(seconds):
                played.answer = await self.play(messages, task, played)
            played.outcome = episode.outcome
            played.cause = str(episode.failure) if episode.failure else None
        except TimeoutError:
            played.outcome, played.cause = Outcome.timeout, f"not over after {seconds:g} seconds"
        except RequestRefused as refused:
            played.outcome, played.cause = episode.outcome, str(episode.failure or refused)
        except EpisodeFailure as failure:
            # A program that fails after the engine did, or because it was told of a limit, is not to blame.
            excused = failure.outcome is Outcome.agent and episode.stopped
            played.outcome = episode.outcome if excused else failure.outcome
            played.cause = str(episode.failure or failure)
        except Exception as error:
            played.outcome, played.cause = Outcome.infrastructure, f"{type(error).__name__}: {error}"
        episode.over.set()


class McpAgentLoop(EpisodeLoop):
    """The ReAct agent with the tools of an MCP server, in this process."""

    async def play(self, messages: list[Message], task: dict[str, Any], played: EpisodeResult) -> str:
        conversation = played.episode.conversation("agent")
        try:
            async with RecordedTools(self.server, self.settings.cassette) as tools:
                unfinished = await play(
                    conversation,
                    tools,
                    await tools.schemas(),
                    messages,
                    played.tools,
                    max_turns=self.settings.agent["max_turns"],
                    max_result_chars=self.settings.agent["max_tool_result_chars"],
                )
            if unfinished:
                played.episode.stop(Outcome.max_turns)
        finally:
            played.answer = played.episode.text_of("agent")
        return played.answer


def _tool_server(call_timeout: float, patience: float, servers: list[str]) -> ToolServer:
    """The tool server that the environment variables name; a session may have to wait for a worker."""
    headers = {}
    if token := os.environ.get("MCP_SERVER_TOKEN"):
        headers["Authorization"] = f"Bearer {token}"
    if servers:
        headers["MCP_SERVERS"] = ",".join(servers)
    return ToolServer(
        os.environ["MCP_SERVER_URL"], headers, call_timeout=call_timeout, connect_timeout=patience
    )


@lru_cache(maxsize=2)
def _end_tokens(model: str) -> tuple[int, ...]:
    """The tokens that end a turn as the model's generation configuration has them; none where it has no such file."""
    from transformers import GenerationConfig

    if not (Path(model) / "generation_config.json").is_file():
        return ()
    ends = GenerationConfig.from_pretrained(model).eos_token_id
    return (ends,) if isinstance(ends, int) else tuple(ends or ())
