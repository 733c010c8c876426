"""Ray: a cluster that the environment names, and what processes that ended left in /tmp."""

import json
import re
from collections.abc import Iterator

from aworld_train.doctor.finding import Finding, fault, ok, warn
from aworld_train.doctor.machine import Machine
from aworld_train.doctor.needs import Needs
from aworld_train.doctor.ports import connection_problem
from aworld_train.network import is_near

_SECONDS = 1.5
_PID = re.compile(r"_(\d+)$")
_START = "Start the cluster's head, or correct RAY_ADDRESS (unset it to train on this machine)."


def check_ray(machine: Machine, needs: Needs) -> Iterator[Finding]:
    """The installed Ray, the cluster in RAY_ADDRESS, and sessions without a process."""
    version = machine.version("ray")
    yield ok("ray", f"Ray {version}." if version else "Ray is not installed; nothing but training needs it.")
    address = machine.variable("RAY_ADDRESS")
    uses = needs.launcher == "ray"
    if address in ("", "auto", "local"):
        if uses and not address:
            yield warn(
                "ray",
                "The recipe's launcher is ray, and RAY_ADDRESS names no cluster.",
                "export RAY_ADDRESS=http://HEAD:8265, the address of the cluster's Jobs API.",
            )
    else:
        yield _cluster(needs, address, uses, version)
    yield from _stray(machine)


def _cluster(needs: Needs, address: str, uses: bool, version: str | None) -> Finding:
    url = address if "://" in address else f"http://{address}"
    place = url.rpartition("@")[2].rpartition("://")[2]
    if not is_near(url) and not needs.online:
        return ok("ray", f"The cluster at {place} is not near and was not asked (--online does).")
    problem = connection_problem(url)
    if problem is not None:
        return fault("ray", uses, f"The cluster of RAY_ADDRESS, {place}, does not answer: {problem}.", _START)
    remote = _remote_version(url) if url.startswith("http") else None
    if remote is not None and version is not None and remote != version:
        return fault(
            "ray",
            uses,
            f"The cluster at {place} runs Ray {remote}, and {version} is installed.",
            f"Install ray=={remote} with this profile, or ray=={version} on the cluster.",
        )
    return ok("ray", f"The cluster at {place} takes connections" + (f" (Ray {remote})." if remote else "."))


def _remote_version(url: str) -> str | None:
    """The cluster's version by its Jobs API; None where something else listens or a token is required."""
    import httpx

    try:
        response = httpx.get(f"{url.rstrip('/')}/api/version", timeout=_SECONDS, trust_env=not is_near(url))
        version = response.json().get("ray_version") if response.status_code == httpx.codes.OK else None
    except (httpx.HTTPError, json.JSONDecodeError, AttributeError):
        return None
    return version if isinstance(version, str) else None


def _stray(machine: Machine) -> Iterator[Finding]:
    """Sessions in /tmp/ray whose process, which their name ends with, is gone."""
    sessions = [entry for entry in machine.path("/tmp/ray").glob("session_*") if not entry.is_symlink()]
    stray = [
        entry
        for entry in sessions
        if (pid := _PID.search(entry.name)) and not machine.path(f"/proc/{pid[1]}").exists()
    ]
    if stray:
        yield warn(
            "ray",
            f"{len(stray)} sessions of Ray in {stray[0].parent} belong to processes that ended.",
            f"Remove them where they take space: rm -r {min(stray)}" + (" ..." if stray[1:] else ""),
        )
