"""From the recipe's section ``agent`` to an agent."""

from collections.abc import Mapping
from typing import Any

from aworld_train.agent.task import Agent
from aworld_train.errors import UsageError, suggestion
from aworld_train.recipe.locate import shipped_file
from aworld_train.recipe.schema import AGENT_KINDS

_EXAMPLES = (
    "command: [python, agent.py], builder: agent.py:build, aworld: agent.yaml, or loop: agent.py:MyLoop"
)


def agent_from(settings: Mapping[str, Any]) -> Agent:
    """The agent that the section describes; nothing of it is loaded until it is checked or run."""
    options = {key: value for key, value in settings.items() if value is not None}
    for key in options:
        if key not in (*AGENT_KINDS, "at_once", "environment"):
            hint = suggestion(key, AGENT_KINDS)
            raise UsageError(f"The section agent has no key {key!r}.{hint} It takes {_EXAMPLES}.")
    kinds = [key for key in AGENT_KINDS if key in options]
    if len(kinds) != 1:
        found = f"has {' and '.join(kinds)}" if kinds else "names no agent"
        raise UsageError(f"The section agent {found}; it takes exactly one of {_EXAMPLES}.")
    if "at_once" in options and kinds != ["command"]:
        raise UsageError("agent.at_once limits how many programs run at a time; it goes with agent.command.")
    if options.get("environment") and kinds != ["command"]:
        raise UsageError("agent.environment has variables for a program; it goes with agent.command.")
    return _make(kinds[0], options)


def check_agent(section: Mapping[str, Any]) -> None:
    """Check whether the agent of a recipe's section can be run; the built-in loop always can."""
    named = {kind: section[kind] for kind in AGENT_KINDS if section[kind]}
    if named:
        agent_from({**named, "environment": section.get("environment")}).check()


def _make(kind: str, options: Mapping[str, Any]) -> Agent:
    if kind == "command":
        from aworld_train.agent.program import ProgramAgent

        return ProgramAgent(
            options["command"], at_once=options.get("at_once"), environment=options.get("environment")
        )
    if kind == "builder":
        from aworld_train.agent.builder import BuilderAgent

        return BuilderAgent(options["builder"])
    if kind == "loop":
        from aworld_train.agent.builder import SubclassAgent

        return SubclassAgent(options["loop"])
    from aworld_train.agent.aworld_yaml import YamlAgent

    return YamlAgent(shipped_file(options["aworld"]))
