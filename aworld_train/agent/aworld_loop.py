"""An AWorld agent written as a class: subclass ``AworldAgentLoop`` and define ``build_agents``, async or not.

The class knows no training framework; an adapter sets ``context`` for every episode.
"""

import inspect
from collections.abc import Awaitable, Generator
from typing import Any

from aworld_train.agent.task import AgentTask, EpisodeContext
from aworld_train.rollout.outcome import AgentFailed


class AwaitableText(str):
    def __await__(self) -> Generator[Any, None, str]:
        yield from ()
        return str(self)


class AworldAgentLoop:
    """One episode of an AWorld ``Agent`` or ``Swarm``; whoever runs it sets ``context`` first."""

    context: EpisodeContext | None = None

    def build_agents(self) -> Any | Awaitable[Any]:
        """The AWorld ``Agent`` or ``Swarm`` of this episode; may be async."""
        raise NotImplementedError(f"{type(self).__name__} has to define build_agents().")

    def get_llm_server_address(self, agent_name: str | None = None) -> "AwaitableText":
        """The base URL of the language model in training, ending in ``/v1``."""
        return AwaitableText(self._episode_context().llm_url(agent_name))

    def get_llm_server_model_name(self) -> "AwaitableText":
        return AwaitableText(self._episode_context().model)

    async def run_task(self, task: AgentTask, context: EpisodeContext) -> str:
        from aworld_train.agent.in_process import run_built

        self.context = context
        return await run_built(self._build, task, context, name=f"{type(self).__name__}.build_agents")

    async def _build(self) -> Any:
        built = self.build_agents()
        return await built if inspect.isawaitable(built) else built

    def _episode_context(self) -> EpisodeContext:
        if self.context is None:
            raise AgentFailed(f"{type(self).__name__}: no episode is under way; set `context` first.")
        return self.context


AWorldAgentLoop = AworldAgentLoop  # the same class by the spelling of some of AWorld's documents
