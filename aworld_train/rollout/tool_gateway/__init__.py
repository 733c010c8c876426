"""The tool gateway, for agents that speak MCP themselves: AWorld, LangGraph, any user-defined program.

Such an agent gets the address of its episode's session in place of the environment's, and never sees its token.
Requests are passed on unchanged; the session records calls and losses.
"""

from aworld_train.rollout.tool_gateway.server import ToolGateway as ToolGateway
from aworld_train.rollout.tool_gateway.server import tool_gateway as tool_gateway
from aworld_train.rollout.tool_gateway.session import ToolGatewaySession as ToolGatewaySession
