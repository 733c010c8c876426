"""From the recipe's section ``agent`` to an agent."""

from collections.abc import Mapping
from typing import Any

from aworld_train.agent.task import Agent
from aworld_train.recipe.locate import shipped_file
from aworld_train.recipe.schema import AGENT_KINDS


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
