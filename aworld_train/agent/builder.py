"""Agents of user-defined code: a function that builds one, a file of `pickled_agent`, or a subclass of a loop.

The function is called once per episode, without arguments or with the ``EpisodeContext``, and may be async. Its module
is imported once per process, in a thread, because frameworks take seconds to import.
"""

import asyncio
import inspect
import threading
from collections.abc import Callable
from typing import Any

from aworld_train.agent.aworld_loop import AworldAgentLoop
from aworld_train.agent.aworld_process import keep_logs_in, no_logs
from aworld_train.agent.in_process import run_built
from aworld_train.agent.pickled_agent import SUFFIX, load_pickled
from aworld_train.agent.task import AgentTask, EpisodeContext
from aworld_train.errors import AworldTrainError, UsageError
from aworld_train.rollout.outcome import AgentFailed
from aworld_train.user_code import load_user_code, user_code_location

Builder = Callable[..., Any]

_loading = threading.Lock()
_loaded: dict[str, Builder] = {}


class BuilderAgent:
    def __init__(self, spec: str):
        self._spec = spec
        if not str(spec).endswith(SUFFIX):
            user_code_location(spec, "builder")

    async def run(self, task: AgentTask, context: EpisodeContext) -> str:

        async def build() -> Any:
            function = _loaded.get(self._spec)
            if function is None:
                keep_logs_in(context.folder)
                function = await asyncio.to_thread(load_builder, self._spec)
            built = function(context) if _takes_context(self._spec, function) else function()
            return await built if inspect.isawaitable(built) else built

        return await run_built(build, task, context, name=f"the builder {self._spec}")

    def check(self) -> None:
        with no_logs():
            _takes_context(self._spec, load_builder(self._spec))


class SubclassAgent:
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
        loop_class: Any = load_builder(self._spec)
        if not (isinstance(loop_class, type) and issubclass(loop_class, AworldAgentLoop)):
            raise UsageError(f"agent.loop: {self._spec!r} is not a subclass of AworldAgentLoop.")
        if loop_class.build_agents is AworldAgentLoop.build_agents:
            raise UsageError(f"agent.loop: {self._spec!r} does not define build_agents().")
        return loop_class


def load_builder(spec: str) -> Builder:
    """Load the function that ``spec`` names; relative paths count from the working directory."""
    with _loading:
        if spec not in _loaded:
            is_pickled = spec.endswith(SUFFIX)
            _loaded[spec] = load_pickled(spec) if is_pickled else load_user_code(spec, "builder")
        return _loaded[spec]


def _takes_context(spec: str, function: Builder) -> bool:
    signature = inspect.signature(function)
    for arguments in ((object(),), ()):
        try:
            signature.bind(*arguments)
            return bool(arguments)
        except TypeError:
            continue
    raise UsageError(
        f"The builder {spec!r} takes {signature}: write it without parameters, or with `context` alone."
    )
