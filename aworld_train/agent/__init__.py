"""Agents: the programs that are trained, and how one is run on one task.

An agent is a user-defined program, a function or class in this process, or a file that describes an AWorld agent or
swarm. Each finds its language model and its tools at the addresses in ``EpisodeContext``.
"""

from collections.abc import Mapping
from typing import Any

from aworld_train.agent.aworld_loop import AWorldAgentLoop as AWorldAgentLoop
from aworld_train.agent.aworld_loop import AworldAgentLoop as AworldAgentLoop
from aworld_train.agent.task import Agent as Agent
from aworld_train.agent.task import AgentTask as AgentTask
from aworld_train.agent.task import AgentTimedOut as AgentTimedOut
from aworld_train.agent.task import EpisodeContext as EpisodeContext
from aworld_train.agent.tools_config import get_agent_tool_env_and_servers as get_agent_tool_env_and_servers
from aworld_train.recipe.locate import shipped_file
from aworld_train.recipe.schema import AGENT_KINDS
from aworld_train.rollout.outcome import AgentFailed as AgentFailed


def agent_from(settings: Mapping[str, Any]) -> Agent:
    """The agent that a checked section describes; nothing of it is loaded until it is checked or run."""
    kind = next(kind for kind in AGENT_KINDS if settings.get(kind))
    if kind == "command":
        from aworld_train.agent.program import ProgramAgent

        return ProgramAgent(settings["command"], settings.get("environment"))
    if kind == "builder":
        from aworld_train.agent.builder import BuilderAgent

        return BuilderAgent(settings["builder"])
    if kind == "loop":
        from aworld_train.agent.builder import SubclassAgent

        return SubclassAgent(settings["loop"])
    from aworld_train.agent.aworld_yaml import YamlAgent

    return YamlAgent(shipped_file(settings["aworld"]))


def check_agent(section: Mapping[str, Any]) -> None:
    """Check whether the agent of a recipe's section can be run; the built-in loop always can."""
    if any(section[kind] for kind in AGENT_KINDS):
        agent_from(section).check()
