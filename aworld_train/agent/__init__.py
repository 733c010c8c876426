"""Agents: the programs that are trained, and how one is run on one task.

An agent is a user-defined program, a function or class in this process, or a file that describes an AWorld agent or
swarm. Each finds its language model and its tools at the addresses in ``EpisodeContext``.
"""

from aworld_train.agent.aworld_loop import AWorldAgentLoop, AworldAgentLoop
from aworld_train.agent.factory import agent_from, check_agent
from aworld_train.agent.task import Agent, AgentTask, AgentTimedOut, EpisodeContext
from aworld_train.agent.tools_config import get_agent_tool_env_and_servers
from aworld_train.rollout.outcome import AgentFailed

__all__ = [
    "AWorldAgentLoop",
    "Agent",
    "AgentFailed",
    "AgentTask",
    "AgentTimedOut",
    "AworldAgentLoop",
    "EpisodeContext",
    "agent_from",
    "check_agent",
    "get_agent_tool_env_and_servers",
]
