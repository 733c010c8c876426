"""Whether the recipe's agent can start where it is a program."""

from collections.abc import Iterator
from dataclasses import replace

from aworld_train.doctor.finding import Finding, fail, ok
from aworld_train.doctor.machine import Machine
from aworld_train.doctor.needs import Needs
from aworld_train.recipe.agent_command import command_fault


def check_agent_program(machine: Machine, needs: Needs) -> Iterator[Finding]:
    command = needs.recipe.agent.command if needs.recipe is not None else []
    if needs.recipe is None or not command:
        yield ok("agent", "The agent is not a separate program.")
        return
    own = replace(machine, environment={**machine.environment, **needs.recipe.agent.environment})
    path = own.environment.get("PATH")
    fault = command_fault(command, machine.folder, path, lambda parts: own.output(*parts))
    if fault is None:
        yield ok("agent", "The program of agent.command is there, with what it imports first.")
    else:
        yield fail("agent", *fault)
