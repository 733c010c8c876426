"""A user-defined agent, a program or an object, that reaches a language model and tools at two addresses.

The model gateway, which records every token, and the tool gateway, which counts calls, run in this process, serve all
its episodes, and give each episode a key that ends with it.
"""

import asyncio
import os
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from aworld_train.adapter.episodes.agent import EpisodeAgent, Task
from aworld_train.adapter.episodes.record import RUN_DIR_VARIABLE
from aworld_train.agent import Agent, AgentTask, EpisodeContext, agent_from
from aworld_train.dataset.schema import GROUND_TRUTHS, IMAGES
from aworld_train.episode.message import Message
from aworld_train.recipe.schema import AGENT_KINDS
from aworld_train.rollout.episode_result import EpisodeResult
from aworld_train.rollout.model_gateway import model_gateway
from aworld_train.rollout.tool_gateway import ToolGatewaySession, tool_gateway


class ExternalAgent(EpisodeAgent):
    async def play(self, messages: list[Message], task: Task, result: EpisodeResult, model_name: str) -> str:
        llm = (await model_gateway()).open_session(
            model_name, result.episode.conversation, result.episode.rules
        )
        tools = await (await tool_gateway()).open_session(self.server, self.settings.cassette)
        context = EpisodeContext(
            llm_url=llm.address,
            llm_key=llm.api_key,
            model=model_name,
            mcp_url=tools.url,
            mcp_token=tools.token,
            mcp_servers=tuple(self.settings.env["servers"]),
            folder=_folder(),
            seconds=self.settings.agent["episode_timeout"],
        )
        # The right answers are in the first field of a task that has several; images are in the messages.
        extra = {
            name: value
            for name, value in (task.get("extra_info") or {}).items()
            if name not in (GROUND_TRUTHS, IMAGES)
        }
        chat = [message.for_chat(with_images=True) for message in messages]
        agent_task = AgentTask(chat, int(extra.get("index", 0)), extra)
        try:
            return await self._run(external_agent(self.settings.agent), agent_task, context, result, tools)
        finally:
            llm.close()
            result.tools = replace(tools.counts)
            if tools.lost is not None:
                result.episode.fail(tools.lost)  # also where the agent is ended because its time is over
            await tools.close()

    async def _run(
        self,
        agent: Agent,
        task: AgentTask,
        context: EpisodeContext,
        result: EpisodeResult,
        tools: ToolGatewaySession,
    ) -> str:
        work = asyncio.ensure_future(agent.run(task, context))
        over = asyncio.ensure_future(result.episode.over.wait())
        try:
            await asyncio.wait({work, over}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                return ""  # the episode knows why it is over
            if tools.lost is not None:
                raise tools.lost  # even if the agent handled the failed call
            return work.result()
        finally:
            over.cancel()
            if not work.done():
                work.cancel()
                await asyncio.wait({work})
            if not work.cancelled():
                work.exception()  # retrieved, so that asyncio does not log it as never retrieved


def external_agent(section: Mapping[str, Any]) -> Agent:
    kind = next(kind for kind in AGENT_KINDS if section[kind])
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
    run = os.environ.get(RUN_DIR_VARIABLE)
    return Path(run) / "logs" / "agents" / str(os.getpid()) if run else Path(tempfile.mkdtemp())
