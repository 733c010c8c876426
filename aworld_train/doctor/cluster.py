"""Ray and SLURM: the cluster that a run would use, and what it leaves idle."""

import re
from collections.abc import Iterator

from aworld_train.doctor.finding import Finding, fail, fault, listed, ok, warn
from aworld_train.doctor.machine import CommandFailed, Machine
from aworld_train.doctor.needs import Needs
from aworld_train.doctor.network import connection_problem, place_of
from aworld_train.encrypted_env import ray_token
from aworld_train.errors import AworldTrainError
from aworld_train.network import is_near

_RAY_SECONDS = 1.5
_PID = re.compile(r"_(\d+)$")
_START = "Start the cluster's head with a token, or correct cluster.address or RAY_ADDRESS."


def check_ray(machine: Machine, needs: Needs) -> Iterator[Finding]:
    version = machine.version("ray")
    yield ok(f"Ray {version}." if version else "Ray is not installed; nothing but training needs it.")
    address = machine.variable("RAY_ADDRESS")
    if needs.recipe is not None and needs.launcher == "ray":
        yield _cluster_of_run(machine, needs, needs.recipe.cluster.address or address)
    elif address not in ("", "auto", "local"):
        yield _cluster(needs, address)
    yield from _stray(machine)


def _cluster_of_run(machine: Machine, needs: Needs, address: str) -> Finding:
    from aworld_train.launch.ray_api import DEFAULT_ADDRESS, RayJobs, checked_address

    try:
        url = checked_address(address or DEFAULT_ADDRESS)
        if not is_near(url) and not needs.online:
            return warn(f"The cluster at {url} is not near and was not asked.", "Add --online to ask it.")
        remote = RayJobs(url, ray_token(machine.environment), _RAY_SECONDS).check()
    except AworldTrainError as error:
        return fail(error.message, _START)
    version = machine.version("ray")
    if version is not None and remote != version:
        return fail(
            f"The cluster at {url} runs Ray {remote}, and {version} is installed.",
            f"Install ray=={remote} with this profile, or ray=={version} on the cluster.",
        )
    return ok(f"The cluster at {url} runs Ray {remote} and accepts the token.")


def _cluster(needs: Needs, address: str) -> Finding:
    """The cluster in RAY_ADDRESS, which this recipe does not name: its own Ray does not use it."""
    url = address if "://" in address else f"http://{address}"
    place = place_of(url)
    if not is_near(url) and not needs.online:
        return ok(f"The cluster at {place} is not near and was not asked (--online does).")
    problem = connection_problem(url)
    if problem is not None:
        return warn(f"The cluster of RAY_ADDRESS, {place}, does not answer: {problem}.", _START)
    return ok(f"The cluster at {place} takes connections.")


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
            f"{len(stray)} sessions of Ray in {stray[0].parent} belong to processes that ended.",
            f"Remove them where they take space: rm -r {min(stray)}" + (" ..." if stray[1:] else ""),
        )


def check_slurm(machine: Machine, needs: Needs) -> Iterator[Finding]:
    uses = needs.launcher == "slurm"
    if machine.program("sinfo") is None:
        if uses:
            remedy = "Run this on the cluster's login node, or take another cluster.launcher."
            yield fault(True, "The recipe's launcher is slurm, and there is no `sinfo`.", remedy)
        else:
            yield ok("No SLURM on this machine.")
    else:
        yield from _controller(machine, uses)
    yield from _allocation(machine, needs)


def _controller(machine: Machine, uses: bool) -> Iterator[Finding]:
    try:
        lines = machine.output("sinfo", "--noheader", "--format=%R %a %D").splitlines()
        jobs = machine.output("squeue", "--noheader", "--me").splitlines()
    except CommandFailed as error:
        yield fault(
            uses,
            f"SLURM is installed and does not answer: {error}.",
            "See that slurmctld and munge run, and that SLURM_CONF names the right file.",
        )
        return
    partitions = {name: int(nodes) for name, state, nodes in map(str.split, lines) if state == "up"}
    if not partitions:
        yield fault(uses, "No partition of SLURM is up.", "Ask who runs the cluster (sinfo -R).")
        return
    names = listed([f"{name} ({nodes} nodes)" for name, nodes in sorted(partitions.items())])
    yield ok(f"SLURM answers: {names}; {len(jobs)} of your jobs.")


def _allocation(machine: Machine, needs: Needs) -> Iterator[Finding]:
    recipe = needs.recipe
    if recipe is None or not machine.variable("SLURM_JOB_ID"):
        return
    nodes = _number(machine, "SLURM_JOB_NUM_NODES") or _number(machine, "SLURM_NNODES")
    gpus = _number(machine, "SLURM_GPUS_ON_NODE")
    for name, allocated, used, key in (
        ("nodes", nodes, recipe.cluster.nodes, "cluster.nodes"),
        ("GPUs per node", gpus, needs.gpus, "cluster.gpus_per_node"),
    ):
        if allocated > used:
            remedy = f"Set {key}={allocated}, or ask for less."
            what = f"SLURM's allocation has {allocated} {name}, and the recipe uses {used}."
            yield warn(what, remedy)
        elif 0 < allocated < used:
            what = f"SLURM's allocation has {allocated} {name}, and the recipe needs {used}."
            yield fault(True, what, f"Ask for more, or set {key}={allocated}.")


def _number(machine: Machine, name: str) -> int:
    value = machine.variable(name)
    return int(value) if value.isdigit() else 0
