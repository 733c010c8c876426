"""The interface of agents that play episodes, and the tool server that they use."""

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar

from aworld_train.adapter.episodes.settings import EpisodeSettings
from aworld_train.episode.message import Message
from aworld_train.rollout.episode_result import EpisodeResult
from aworld_train.rollout.tools import ToolServer


class EpisodeAgent(ABC):
    """Plays tasks; one object serves many episodes at the same time."""

    asks_model: ClassVar[bool] = True
    """Whether an episode without a request to the model has failed."""

    def __init__(self, settings: EpisodeSettings):
        self.settings = settings

    @cached_property
    def server(self) -> ToolServer:
        env = self.settings.env
        return tool_server(self.settings.agent["tool_timeout"], env["queue_timeout"], list(env["servers"]))

    @abstractmethod
    async def play(
        self, messages: list[Message], task: Mapping[str, Any], result: EpisodeResult, model_name: str
    ) -> str:
        """Work on a task, a row of a dataset, and return the answer; RequestRefused or EpisodeFailure end the episode.

        Keep ``result`` up to date before each await: an interrupted episode is reported from it.
        """


def tool_server(call_timeout: float | None, patience: float, servers: list[str]) -> ToolServer:
    """The tool server that MCP_SERVER_URL and MCP_SERVER_TOKEN name; a session may have to wait for a worker."""
    headers = {}
    if token := os.environ.get("MCP_SERVER_TOKEN"):
        headers["Authorization"] = f"Bearer {token}"
    if servers:
        headers["MCP_SERVERS"] = ",".join(servers)
    return ToolServer(
        os.environ["MCP_SERVER_URL"], headers, call_timeout=call_timeout, connect_timeout=patience
    )
