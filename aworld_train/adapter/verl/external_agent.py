"""An agent that is not ours, played inside VeRL: it finds a language model and tools at two addresses of its own.

The language model it talks to is the one under training, through a gateway that records every token; its tools are the
environment's, through a gateway that counts calls and notices when the environment is gone. Both live in this process,
serve all its episodes, and know each by a key that ends with it.
"""

import asyncio
import os
import tempfile
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from aworld_train.adapter.verl.agent_loop import EpisodeLoop, EpisodeResult
from aworld_train.adapter.verl.episode_record import RUN_DIR_VARIABLE
from aworld_train.agent import Agent, AgentTask, EpisodeContext, agent_from
from aworld_train.rollout.messages import Message
from aworld_train.rollout.model_gateway import model_gateway
from aworld_train.rollout.tool_gateway import ToolGatewaySession, tool_gateway

_KINDS = ("command", "builder", "aworld", "loop")


class ExternalAgentLoop(EpisodeLoop):
    """Plays one task with the agent that the recipe names."""

    async def play(self, messages: list[Message], task: dict[str, Any], played: EpisodeResult) -> str:
        model = Path(str(self.config.actor_rollout_ref.get("model", {}).get("path") or "model")).name
        llm = (await model_gateway()).open_session(model, played.episode.conversation)
        tools = await (await tool_gateway()).open_session(self.server, self.settings.cassette)
        surroundings = EpisodeContext(
            llm_url=llm.address,
            llm_key=llm.api_key,
            model=model,
            mcp_url=tools.url,
            mcp_token=tools.token,
            mcp_servers=tuple(self.settings.env["servers"]),
            folder=_folder(),
            seconds=self.settings.agent["episode_timeout"],
        )
        given = AgentTask(
            [message.for_chat() for message in messages],
            int((task.get("extra_info") or {}).get("index", 0)),
            task.get("extra_info") or {},
        )
        try:
            return await self._run(external_agent(self.settings.agent), given, surroundings, played, tools)
        finally:
            llm.close()
            counts = tools.counts
            played.tools.calls, played.tools.errors = counts.calls, counts.errors
            played.tools.seconds = counts.seconds
            await tools.close()

    async def _run(
        self,
        agent: Agent,
        task: AgentTask,
        surroundings: EpisodeContext,
        played: EpisodeResult,
        tools: ToolGatewaySession,
    ) -> str:
        """Let the agent work until it is done or the episode is over, whichever comes first."""
        work = asyncio.ensure_future(agent.run(task, surroundings))
        over = asyncio.ensure_future(played.episode.over.wait())
        try:
            await asyncio.wait({work, over}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                return ""  # the episode knows why it is over
            if tools.lost is not None:
                raise tools.lost  # whatever the agent made of it
            return work.result()
        finally:
            over.cancel()
            if not work.done():
                work.cancel()
                await asyncio.wait({work})
            if not work.cancelled():
                work.exception()  # seen: it has been told, or does not matter any more


def external_agent(section: Mapping[str, Any]) -> Agent:
    """The agent that the recipe's section ``agent`` names; one object serves all episodes of a process.

    Raises:
        UsageError: it cannot be as it is described.
    """
    kind = next(kind for kind in _KINDS if section[kind])
    value = section[kind]
    if kind == "command":
        return _program(tuple(value), tuple(section["environment"].items()))
    return _agent(kind, value)


@lru_cache(maxsize=4)
def _agent(kind: str, value: str) -> Agent:
    return agent_from({kind: value})


@lru_cache(maxsize=4)
def _program(command: tuple[str, ...], environment: tuple[tuple[str, str], ...]) -> Agent:
    return agent_from({"command": list(command), "environment": dict(environment)})


@lru_cache(maxsize=1)
def _folder() -> Path:
    """Where agents of this process keep their own files: inside the run's folder, where there is one."""
    run = os.environ.get(RUN_DIR_VARIABLE)
    return Path(run) / "logs" / "agents" / str(os.getpid()) if run else Path(tempfile.mkdtemp())
