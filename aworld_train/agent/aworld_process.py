"""AWorld's process-wide state, made fit for many episodes at a time, of which a process may run a million."""

import asyncio
import contextlib
import itertools
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Any

_SILENT = ("trace", "debug", "info", "success")
_LATER = 5.0  # seconds
_WORKER_SECONDS = 0.2
# A tool call under way treats a cancellation as a failure and retries, up to three times.
_WORKER_CANCELLATIONS = 5

_numbers = itertools.count()
_store: ContextVar[Any] = ContextVar("aworld_memory_store", default=None)

_LOG_FOLDER = "AWORLD_LOG_PATH"
_NO_CONSOLE = "AWORLD_DISABLE_CONSOLE_LOG"


@cache
def prepare() -> None:
    """Prepare the imported AWorld; a memory that the user set up stays."""
    import tiktoken.registry
    from aworld.memory.main import MEMORY_HOLDER, MemoryFactory
    from aworld.models.utils import openai_tokenizer

    _silence()
    # AWorld has a copy of this vocabulary; tiktoken would download it when tokens are estimated.
    tiktoken.registry.ENCODINGS.setdefault("cl100k_base", openai_tokenizer.tokenizer)
    if not MEMORY_HOLDER.get("instance"):
        MemoryFactory.init(custom_memory_store=_episodes_store())


def _silence() -> None:
    """Turn off logs below warnings: they are a third of an episode's cost and hold every prompt several times."""
    from aworld.logs import util

    loggers = [logger for logger in vars(util).values() if isinstance(logger, util.AWorldLogger)]
    for logger in loggers:
        with contextlib.suppress(AttributeError, ValueError):
            util.base_logger.remove(logger.file_log_id)
        for level in _SILENT:
            setattr(logger, level, lambda *_, **__: None)


@contextmanager
def episode_memory() -> Iterator[None]:
    """Within this block AWorld uses a new memory, which ends with the block."""
    from aworld.memory.main import InMemoryMemoryStore

    token = _store.set(InMemoryMemoryStore())
    try:
        yield
    finally:
        _store.reset(token)


def _episodes_store() -> Any:
    """A memory store that forwards to the current episode's memory; AWorld has one store for all episodes."""
    from aworld.core.memory import MemoryStore
    from aworld.memory.main import InMemoryMemoryStore

    outside = InMemoryMemoryStore()

    def forward(name: str) -> Any:
        def method(_: Any, *arguments: Any, **options: Any) -> Any:
            return getattr(_store.get() or outside, name)(*arguments, **options)

        return method

    methods = {name: forward(name) for name in MemoryStore.__abstractmethods__}
    return type("EpisodesStore", (MemoryStore,), methods)()


def unused_agent_id(name: str) -> str:
    """An identifier in AWorld's form, with six digits that no living agent of this process has."""
    return f"{name}---uuid{next(_numbers) % 16**6:06x}uuid"


async def drop_traces(task: Any, agents: list[Any]) -> None:
    """Remove AWorld's state of a finished task: agents, queues, states, sandboxes and their threads' workers."""
    from aworld.core.agent.base import AgentFactory
    from aworld.events import eventbus

    for agent in agents:
        name = agent.id()
        for registry in (
            AgentFactory._cls,
            AgentFactory._desc,
            AgentFactory._agent_conf,
            AgentFactory._agent_instance,
        ):
            registry.pop(name, None)
        if agent.sandbox is not None:
            await _end_sandbox(agent.sandbox)
    for registry in (eventbus._message_queue, eventbus._subscribers, eventbus._transformer):
        registry.pop(task.id, None)
    # Cancelled handlers look their states up once more.
    asyncio.get_running_loop().call_later(_LATER, _drop_states, task.session_id)


def _drop_states(session_id: str) -> None:
    from aworld.runners.state_manager import InMemoryStateStorage

    states = InMemoryStateStorage.instance()
    for node in states._session_nodes.pop(session_id, []):
        states._nodes.pop(node.node_id, None)
    with contextlib.suppress(ValueError):
        states._ordered_session_ids.remove(session_id)


async def _end_sandbox(sandbox: Any) -> None:
    from aworld.sandbox.runtime import SandboxManager

    manager = SandboxManager.get_instance()
    workers = [
        manager._registry.pop(key)
        for key in list(manager._registry)
        if key == sandbox.sandbox_id or key.startswith(f"{sandbox.sandbox_id}:")
    ]
    manager.unregister_sandbox(sandbox.sandbox_id)
    for worker in workers:
        for _ in range(_WORKER_CANCELLATIONS):
            worker.loop.call_soon_threadsafe(worker.worker_task.cancel)
            await asyncio.sleep(0)
            if worker.worker_task.done():
                break
            await asyncio.sleep(_WORKER_SECONDS / _WORKER_CANCELLATIONS)


def keep_logs_in(folder: Path) -> None:
    """Have AWorld, which opens its files at its import, write into ``folder``: the first one of the process."""
    os.environ.setdefault(_NO_CONSOLE, "true")
    os.environ.setdefault(_LOG_FOLDER, str(folder))


@contextmanager
def no_logs() -> Iterator[None]:
    """Within this block, importing AWorld leaves no log files; for checking an agent, not for running it."""
    before = {name: os.environ.get(name) for name in (_LOG_FOLDER, _NO_CONSOLE)}
    with tempfile.TemporaryDirectory(prefix="aworld-", ignore_cleanup_errors=True) as folder:
        keep_logs_in(Path(folder))
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
