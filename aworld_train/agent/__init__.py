"""Agents: what is trained, and how it is run on one task.

agent = agent_from({"command": ["python", "my_agent.py"]})
answer = await agent.run(task, surroundings)

An agent is a program of its own, a function that builds one in this process, or a file that describes an AWorld agent
or swarm. Whatever it is, it asks its language model and calls its tools where ``EpisodeContext`` say.
"""

from aworld_train.agent.aworld_loop import AworldAgentLoop
from aworld_train.agent.factory import agent_from, check_agent
from aworld_train.agent.task import Agent, AgentTask, AgentTimedOut, EpisodeContext
from aworld_train.agent.tools_config import get_agent_tool_env_and_servers
from aworld_train.rollout.outcome import AgentFailed

__all__ = [
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
