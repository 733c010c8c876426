"""Programs that a run starts on this machine: tools as plain processes, the agent, and the code of answers."""

import ctypes
import os
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec

from aworld_train.doctor.finding import Finding, fail, fault, ok, warn
from aworld_train.doctor.machine import Machine
from aworld_train.doctor.needs import Needs
from aworld_train.recipe.agent_command import command_fault

_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
"""The programs that gaia-mcp-server's browser takes."""
_BROWSER_SERVER = "browser"


def check_tools(machine: Machine, needs: Needs) -> Iterator[Finding]:
    if needs.recipe is not None and not (needs.processes or needs.may_be_processes):
        yield ok("The recipe starts no tools as processes of this machine.")
        return
    faults = 0
    browsing = [name for name in needs.servers if _BROWSER_SERVER in name]
    if (browsing or needs.recipe is None) and not any(map(machine.program, _BROWSERS)):
        faults += 1
        yield fault(
            needs.processes,
            "No Chromium or Chrome for tools that browse as processes of this machine.",
            "apt install chromium, or leave the browser's server out of env.servers; images have their own.",
        )
    for name, entry in needs.servers.items():
        program = entry.command[0] if entry.command else "python"
        if not program.startswith(("python", "{")) and machine.program(program) is None:
            faults += 1
            what = f"The tool server {name} is started with `{program}`, which is not on PATH."
            yield fault(needs.processes, what, f"Install {program}, or run the tools in containers.")
    if find_spec("ensurepip") is None and machine.program("uv") is None:
        faults += 1
        yield warn(
            "Python has no ensurepip, so no virtual environment can be made for packages that tool servers need.",
            "apt install python3-venv, or install the environment's requirements.txt into this environment.",
        )
    if not faults:
        when = ", which they do where no Docker engine answers" if needs.may_be_processes else ""
        yield ok(f"Tools can run as processes of this machine{when} (--backend process).")


def check_agent_program(machine: Machine, needs: Needs) -> Iterator[Finding]:
    command = needs.recipe.agent.command if needs.recipe is not None else []
    if needs.recipe is None or not command:
        yield ok("The agent is not a separate program.")
        return
    own = replace(machine, environment={**machine.environment, **needs.recipe.agent.environment})
    path = own.environment.get("PATH")
    fault = command_fault(command, machine.folder, path, lambda parts: own.output(*parts))
    if fault is None:
        yield ok("The program of agent.command is there, with what it imports first.")
    else:
        yield fail(*fault)


_LANDLOCK_CREATE_RULESET = 444  # the same on all architectures
_VERSION = 1  # flag: return the version instead of making a set of rules


def check_confinement(machine: Machine, needs: Needs) -> Iterator[Finding]:
    libc = ctypes.CDLL(None, use_errno=True)
    version = libc.syscall(_LANDLOCK_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_VERSION))
    if version > 0:
        yield ok(f"The kernel confines the code of answers (Landlock {version}).")
        return
    reason = os.strerror(ctypes.get_errno())
    yield fault(
        _runs_code(needs),
        f"The kernel {os.uname().release} lacks Landlock ({reason}), so code_tests runs no answer on it.",
        "Take a kernel of 5.13 or newer with Landlock enabled (lsm=landlock,...), or score on another machine.",
    )


def _runs_code(needs: Needs) -> bool:
    if needs.recipe is None or needs.directory is None:
        return False
    from aworld_train.recipe.reward_checks import runs_code

    return runs_code(needs.recipe)
