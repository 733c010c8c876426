"""The tools of the current episode, for agents that run in this process.

AWorld agents are built with ``get_agent_tool_env_and_servers()``. Inside an episode it returns that episode's
connection, although hundreds run in one event loop; elsewhere the one of ``MCP_SERVER_URL`` and ``MCP_SERVER_TOKEN``.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from aworld_train import env
from aworld_train.agent.task import EpisodeContext

_current: ContextVar[EpisodeContext | None] = ContextVar("episode_context", default=None)


@contextmanager
def use_context(context: EpisodeContext) -> Iterator[None]:
    """Make ``context`` the current one in this block, and in every task and thread started from it."""
    token = _current.set(context)
    try:
        yield
    finally:
        _current.reset(token)


def get_agent_tool_env_and_servers(
    servers: Sequence[str] | None = None,
) -> tuple[dict[str, dict[str, dict[str, Any]]], list[str]]:
    """The arguments ``mcp_config`` and ``mcp_servers`` of an AWorld ``Agent``; by default all tools of the recipe."""
    context = _current.get()
    if context is None:
        return env.get_agent_tool_env_and_servers(servers)
    chosen = context.mcp_servers if servers is None else tuple(servers)
    return env.get_agent_tool_env_and_servers(chosen, url=context.mcp_url, token=context.mcp_token)
