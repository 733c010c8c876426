"""Ray: the cluster that a recipe or RAY_ADDRESS names, and what processes that ended left in /tmp."""

import re
from collections.abc import Iterator

from aworld_train.doctor.finding import Finding, fail, ok, warn
from aworld_train.doctor.machine import Machine
from aworld_train.doctor.needs import Needs
from aworld_train.doctor.ports import connection_problem
from aworld_train.encrypted_env import ray_token
from aworld_train.errors import AworldTrainError
from aworld_train.network import is_near

_SECONDS = 1.5
_PID = re.compile(r"_(\d+)$")
_START = "Start the cluster's head with a token, or correct cluster.address or RAY_ADDRESS."


def check_ray(machine: Machine, needs: Needs) -> Iterator[Finding]:
    """The installed Ray, the cluster that the run or this shell would use, and sessions without a process."""
    version = machine.version("ray")
    yield ok("ray", f"Ray {version}." if version else "Ray is not installed; nothing but training needs it.")
    address = machine.variable("RAY_ADDRESS")
    if needs.recipe is not None and needs.launcher == "ray":
        yield _cluster_of_run(machine, needs, needs.recipe.cluster.address or address)
    elif address not in ("", "auto", "local"):
        yield _cluster(needs, address)
    yield from _stray(machine)


def _cluster_of_run(machine: Machine, needs: Needs, address: str) -> Finding:
    """The cluster that a recipe is launched on, asked as the launcher asks it."""
    from aworld_train.launch.ray_api import DEFAULT_ADDRESS, RayJobs, checked_address

    try:
        url = checked_address(address or DEFAULT_ADDRESS)
        if not is_near(url) and not needs.online:
            return warn(
                "ray", f"The cluster at {url} is not near and was not asked.", "Add --online to ask it."
            )
        remote = RayJobs(url, ray_token(machine.environment), _SECONDS).check()
    except AworldTrainError as error:
        return fail("ray", error.message, _START)
    version = machine.version("ray")
    if version is not None and remote != version:
        return fail(
            "ray",
            f"The cluster at {url} runs Ray {remote}, and {version} is installed.",
            f"Install ray=={remote} with this profile, or ray=={version} on the cluster.",
        )
    return ok("ray", f"The cluster at {url} runs Ray {remote} and accepts the token.")


def _cluster(needs: Needs, address: str) -> Finding:
    """The cluster in RAY_ADDRESS, which this recipe does not name: its own Ray does not use it."""
    url = address if "://" in address else f"http://{address}"
    place = url.rpartition("@")[2].rpartition("://")[2]
    if not is_near(url) and not needs.online:
        return ok("ray", f"The cluster at {place} is not near and was not asked (--online does).")
    problem = connection_problem(url)
    if problem is not None:
        return warn("ray", f"The cluster of RAY_ADDRESS, {place}, does not answer: {problem}.", _START)
    return ok("ray", f"The cluster at {place} takes connections.")


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
