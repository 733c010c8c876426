"""Runs the probes of all areas side by side, each within a time limit.

A file system or a driver can hang in a way that no signal ends: each probe's thread is left behind at its limit.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from queue import Empty, Queue
from threading import Thread

from aworld_train.doctor.cluster import check_ray, check_slurm
from aworld_train.doctor.disk import check_disk, check_home, check_run_folder, check_shared_memory
from aworld_train.doctor.engine import check_engine
from aworld_train.doctor.finding import Finding, Probe, fail, warn
from aworld_train.doctor.gpu import check_gpus
from aworld_train.doctor.hub import check_hub, check_model
from aworld_train.doctor.inputs import check_inputs, check_keys
from aworld_train.doctor.machine import CommandFailed, Machine, NoAnswer
from aworld_train.doctor.needs import Needs
from aworld_train.doctor.network import check_clock, check_ports
from aworld_train.doctor.packages import check_packages, check_python, check_wheels
from aworld_train.doctor.programs import check_agent_program, check_confinement, check_tools
from aworld_train.doctor.resources import check_limits, check_memory, check_processors
from aworld_train.errors import AworldTrainError
from aworld_train.masking import mask

PROBES: dict[str, Probe] = {
    "python": check_python,
    "packages": check_packages,
    "wheels": check_wheels,
    "gpu": check_gpus,
    "memory": check_memory,
    "processors": check_processors,
    "disk": check_disk,
    "shared memory": check_shared_memory,
    "run folder": check_run_folder,
    "home": check_home,
    "limits": check_limits,
    "ports": check_ports,
    "clock": check_clock,
    "docker": check_engine,
    "tools": check_tools,
    "agent": check_agent_program,
    "code tests": check_confinement,
    "ray": check_ray,
    "slurm": check_slurm,
    "hub": check_hub,
    "model": check_model,
    "inputs": check_inputs,
    "keys": check_keys,
}


PROBE_SECONDS = 2.0
TOTAL_SECONDS = 10.0
_SIDE_BY_SIDE = 6
"""So many probes hang at the same time before others wait: with 23 probes the whole takes at most 8 s."""


@dataclass
class _RunningProbe:
    area: str
    deadline: float
    findings: list[Finding] = field(default_factory=list)


def examine(
    machine: Machine,
    needs: Needs,
    probes: Mapping[str, Probe] = PROBES,
    *,
    probe_seconds: float = PROBE_SECONDS,
    total_seconds: float = TOTAL_SECONDS,
) -> list[Finding]:
    waiting = list(probes.items())
    areas = [area for area, _ in waiting]
    end = time.monotonic() + total_seconds
    running: dict[str, _RunningProbe] = {}
    done: Queue[str] = Queue()
    results: dict[str, list[Finding]] = {}
    while waiting or running:
        now = time.monotonic()
        while waiting and len(running) < _SIDE_BY_SIDE and now < end:
            area, probe = waiting.pop(0)
            running[area] = attempt = _RunningProbe(area, min(now + probe_seconds, end))
            Thread(target=_run, args=(probe, machine, needs, attempt, done), daemon=True).start()
        if now >= end:
            results |= {area: [_not_reached(total_seconds)] for area, _ in waiting}
            waiting.clear()
        for area in [area for area, attempt in running.items() if attempt.deadline <= now]:
            results[area] = [*running.pop(area).findings, _hangs(probe_seconds)]
        if running:
            try:
                area = done.get(timeout=max(min(a.deadline for a in running.values()) - time.monotonic(), 0))
            except Empty:
                continue
            if area in running:
                results[area] = running.pop(area).findings
    return [replace(finding, area=area) for area in areas for finding in results[area]]


def _run(probe: Probe, machine: Machine, needs: Needs, attempt: _RunningProbe, done: "Queue[str]") -> None:
    for finding in _guarded(probe, machine, needs):
        # A path in a recipe may come from the environment, and what a server writes may hold anything.
        attempt.findings.append(replace(finding, what=mask(finding.what), remedy=mask(finding.remedy)))
    done.put(attempt.area)


def _guarded(probe: Probe, machine: Machine, needs: Needs) -> Iterator[Finding]:
    """The probe's findings; what it could not look at is a finding too."""
    try:
        yield from probe(machine, needs)
    except NoAnswer as error:
        yield warn(f"{error}, so this was not checked.", "Run it by hand to see what it waits for.")
    except AworldTrainError as error:
        yield fail(error.message, "Change the recipe, or make what it names.")
    except CommandFailed as error:
        yield warn(f"This could not be checked: {error}.", "Run it by hand.")
    except Exception as error:  # of any library; the other areas are still worth knowing
        reason = f"{type(error).__name__}: {error}"
        yield warn(f"This could not be checked ({reason}).", "Look at it by hand.")


def _hangs(seconds: float) -> Finding:
    return warn(
        f"The check did not end within {seconds:g} s: something that it reads hangs.",
        "Look for a file system, driver or service that does not answer; a busy machine may need a second try.",
    )


def _not_reached(seconds: float) -> Finding:
    return warn(
        f"Not checked: other checks took the {seconds:g} s that there are.",
        "Remove the cause of the checks that hang, and run this again.",
    )
