"""Agents: the programs that are trained, and how one is run on one task.

An agent is a user-defined program, a function or class in this process, or a file that describes an AWorld agent or
swarm. Each finds its language model and its tools at the addresses in ``EpisodeContext``.
"""

from aworld_train.agent.aworld_loop import AWorldAgentLoop as AWorldAgentLoop
from aworld_train.agent.aworld_loop import AworldAgentLoop as AworldAgentLoop
from aworld_train.agent.factory import agent_from as agent_from
from aworld_train.agent.factory import check_agent as check_agent
from aworld_train.agent.task import Agent as Agent
from aworld_train.agent.task import AgentTask as AgentTask
from aworld_train.agent.task import AgentTimedOut as AgentTimedOut
from aworld_train.agent.task import EpisodeContext as EpisodeContext
from aworld_train.agent.tools_config import get_agent_tool_env_and_servers as get_agent_tool_env_and_servers
from aworld_train.rollout.outcome import AgentFailed as AgentFailed
