"""The tool gateway, for agents that speak MCP themselves: AWorld, LangGraph, any user-defined program.

Such an agent gets the address of its episode's gateway session in place of the environment's. Its requests are passed
on unchanged. The session records what the episode has to know: how many calls there were and how they ended, whether
the environment was lost, and, with a cassette, the answer to each call. The agent never sees the environment's token.

    gateway = await tool_gateway()
    session = await gateway.open_session(ToolServer(url, headers), cassette)
    ...  # the agent uses session.url
    await session.close()
    print(session.counts, session.lost)
"""

from aworld_train.rollout.tool_gateway.server import ToolGateway, tool_gateway
from aworld_train.rollout.tool_gateway.session import CallCounts, ToolGatewaySession

__all__ = ["CallCounts", "ToolGateway", "ToolGatewaySession", "tool_gateway"]
