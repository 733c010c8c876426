"""An agent that is a user-defined class: ``module:Class`` or ``file.py:Class``, a subclass of ``AworldAgentLoop``."""

import asyncio

from aworld_train.agent.aworld_loop import AworldAgentLoop
from aworld_train.agent.builder import load_builder
from aworld_train.agent.logs import keep_logs_in, no_logs
from aworld_train.agent.task import AgentTask, EpisodeContext
from aworld_train.errors import AworldTrainError, UsageError
from aworld_train.rollout.outcome import AgentFailed


class SubclassAgent:
    """One object of the class per episode."""

    def __init__(self, spec: str):
        self._spec = spec

    async def run(self, task: AgentTask, context: EpisodeContext) -> str:
        keep_logs_in(context.folder)
        try:
            loop_class = await asyncio.to_thread(self._load)
        except AworldTrainError as error:
            raise AgentFailed(error.message) from error
        try:
            loop = loop_class()
        except Exception as error:
            raise AgentFailed(
                f"agent.loop: {self._spec} cannot be made: {type(error).__name__}: {error}"
            ) from error
        return await loop.run_task(task, context)

    def check(self) -> None:
        with no_logs():
            self._load()

    def _load(self) -> type[AworldAgentLoop]:
        found = load_builder(self._spec)
        if not (isinstance(found, type) and issubclass(found, AworldAgentLoop)):
            raise UsageError(f"agent.loop: {self._spec!r} is no subclass of AworldAgentLoop.")
        if found.build_agents is AworldAgentLoop.build_agents:
            raise UsageError(f"agent.loop: {self._spec!r} does not define build_agents().")
        return found
