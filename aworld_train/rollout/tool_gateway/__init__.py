"""A gateway for the tools of agents that speak MCP themselves: AWorld, LangGraph, any program of an episode's own.

Such an agent is given the address of its episode's admission in place of the environment's. What it asks passes
through unchanged; what its episode has to know is seen on the way: how many calls there were and how they ended,
whether the environment went away, and, with a cassette, what each call was answered. The environment's token stays
here.

    gateway = await tool_gateway()
    admission = await gateway.admit(ToolServer(url, headers), cassette)
    ...  # the agent uses admission.url
    await admission.close()
    print(admission.counts, admission.lost)
"""

from aworld_train.rollout.tool_gateway.admission import CallCounts, ToolGatewaySession
from aworld_train.rollout.tool_gateway.server import ToolGateway, tool_gateway

__all__ = ["CallCounts", "ToolGateway", "ToolGatewaySession", "tool_gateway"]
