"""Agents in this process, built for one episode: an AWorld ``Agent`` or ``Swarm``, or a function of the task."""

import asyncio
import inspect
import sys
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import cache
from typing import Any

from aworld_train.agent.task import AgentTask, AgentTimedOut, EpisodeContext
from aworld_train.agent.tools_config import use_context
from aworld_train.errors import AworldTrainError
from aworld_train.rollout import episode_clock
from aworld_train.rollout.outcome import AgentFailed, EpisodeFailure

_THREADS = 128  # for synchronous functions: an episode mostly waits for its language model


async def run_built(
    build: Callable[[], Awaitable[Any]], task: AgentTask, context: EpisodeContext, *, name: str
) -> str:
    """Build an agent and run it on the task; ``name`` is the agent's in errors.

    Raises the ``EpisodeFailure`` that the agent met, and ``AgentFailed`` for any other error.
    """
    with use_context(context):
        try:
            async with episode_clock.limit(context.seconds) as limit:
                return await _run(await build(), task, context, name)
        except EpisodeFailure:
            raise
        except (Exception, SystemExit) as error:
            if isinstance(error, TimeoutError) and limit.expired():
                raise AgentTimedOut(f"{name}: not done after {context.seconds:g} seconds") from error
            raise AgentFailed(f"{name}: {_error_text(error)}") from error


async def _run(built: Any, task: AgentTask, context: EpisodeContext, name: str) -> str:
    if is_aworld(built):
        from aworld_train.agent.aworld import run_aworld

        return await run_aworld(built, task, context)
    if not callable(built):
        raise AgentFailed(
            f"{name} returned an object of type {type(built).__name__}: return an AWorld Agent or Swarm, or a "
            "function answer(task) -> str."
        )
    answer = await _call(built, task)
    if not isinstance(answer, str):
        raise AgentFailed(f"{name}: the answer is of type {type(answer).__name__}, not a string.")
    return answer


def is_aworld(built: object) -> bool:
    """Whether it is an AWorld agent or swarm; False if AWorld was never imported."""
    base = getattr(sys.modules.get("aworld.core.agent.base"), "BaseAgent", ())
    swarm = getattr(sys.modules.get("aworld.core.agent.swarm"), "Swarm", ())
    return isinstance(built, (base, swarm))


async def _call(answer: Callable[[AgentTask], Any], task: AgentTask) -> Any:
    is_async = inspect.iscoroutinefunction(answer) or inspect.iscoroutinefunction(type(answer).__call__)
    if not is_async:
        # A thread cannot be cancelled: after the time limit it runs until its next request is refused.
        loop, context = asyncio.get_running_loop(), copy_context()
        result = await loop.run_in_executor(_threads(), context.run, answer, task)
    else:
        result = answer(task)
    return await result if inspect.isawaitable(result) else result


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_THREADS, thread_name_prefix="agent")


def _error_text(error: BaseException) -> str:
    if isinstance(error, AworldTrainError):
        return error.message
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
