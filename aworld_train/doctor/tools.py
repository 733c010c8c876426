"""What tool servers need of this machine where they run as plain processes instead of in an image."""

from collections.abc import Iterator
from importlib.util import find_spec

from aworld_train.doctor.finding import Finding, fault, ok, warn
from aworld_train.doctor.machine import Machine
from aworld_train.doctor.needs import Needs

_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
"""The programs that gaia-mcp-server's browser takes."""
_BROWSER_SERVER = "browser"


def check_tools(machine: Machine, needs: Needs) -> Iterator[Finding]:
    if needs.recipe is not None and not (needs.processes or needs.may_be_processes):
        yield ok("tools", "The recipe starts no tools as processes of this machine.")
        return
    faults = 0
    browsing = [name for name in needs.servers if _BROWSER_SERVER in name]
    if (browsing or needs.recipe is None) and not any(map(machine.program, _BROWSERS)):
        faults += 1
        yield fault(
            "tools",
            needs.processes,
            "There is no Chromium or Chrome for tools that browse as processes of this machine.",
            "apt install chromium, or leave the browser's server out of env.servers; images have their own.",
        )
    for name, entry in needs.servers.items():
        program = entry.command[0] if entry.command else "python"
        if not program.startswith(("python", "{")) and machine.program(program) is None:
            faults += 1
            what = f"The tool server {name} is started with `{program}`, which is not on PATH."
            yield fault("tools", needs.processes, what, f"Install {program}, or run the tools in containers.")
    if find_spec("ensurepip") is None and machine.program("uv") is None:
        faults += 1
        yield warn(
            "tools",
            "Python has no ensurepip, so no virtual environment can be made for packages that tool servers need.",
            "apt install python3-venv, or install the environment's requirements.txt into this environment.",
        )
    if not faults:
        when = ", which they do where no Docker engine answers" if needs.may_be_processes else ""
        yield ok("tools", f"Tools can run as processes of this machine{when} (--backend process).")
