"""The interface of agents that play episodes, and the tool server that they use."""

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar

from aworld_train.adapter.episodes.settings import EpisodeSettings
from aworld_train.episode.message import Message
from aworld_train.episode.outcome import Outcome
from aworld_train.rollout.cassette import RecordedTools
from aworld_train.rollout.episode_result import EpisodeResult
from aworld_train.rollout.react import play
from aworld_train.rollout.tool_selection import ToolSelection
from aworld_train.rollout.tools import ToolServer, tool_headers

Task = Mapping[str, Any]
"""A row of a dataset."""


class EpisodeAgent(ABC):
    """Plays tasks; one object serves many episodes at the same time."""

    asks_model: ClassVar[bool] = True
    """Whether an episode without a request to the model has failed."""

    def __init__(self, settings: EpisodeSettings):
        self.settings = settings

    @cached_property
    def server(self) -> ToolServer:
        return tool_server(self.settings)

    @abstractmethod
    async def play(self, messages: list[Message], task: Task, result: EpisodeResult, model_name: str) -> str:
        """Work on a task and return the answer; RequestRefused or EpisodeFailure end the episode.

        Keep ``result`` up to date before each await: an interrupted episode is reported from it.
        """


def tool_server(settings: EpisodeSettings) -> ToolServer:
    """The tool server that MCP_SERVER_URL and MCP_SERVER_TOKEN name; a session may have to wait for a worker."""
    return ToolServer(
        os.environ["MCP_SERVER_URL"],
        tool_headers(os.environ.get("MCP_SERVER_TOKEN"), settings.env["servers"]),
        call_timeout=settings.agent["tool_timeout"],
        connect_timeout=settings.env["queue_timeout"],
        selection=ToolSelection.read(settings.agent["tools"]),
    )


class McpAgent(EpisodeAgent):
    """The package's own agent: ReAct with the tools of an MCP server, in this process."""

    async def play(self, messages: list[Message], task: Task, result: EpisodeResult, model_name: str) -> str:
        """The answer is the text of all assistant turns."""
        conversation = result.episode.conversation("agent")
        try:
            async with RecordedTools(self.server, self.settings.cassette) as tools:
                unfinished = await play(
                    conversation,
                    tools,
                    await tools.schemas(),
                    messages,
                    result.tools,
                    max_turns=self.settings.agent["max_turns"],
                    max_result_chars=self.settings.agent["max_tool_result_chars"],
                    with_images=not result.episode.rules.no_images,
                )
            if unfinished:
                result.episode.stop(Outcome.max_turns)
        finally:
            result.answer = result.episode.text_of("agent")
        return result.answer
