"""SLURM: whether its controller answers, and an allocation that is larger than what the recipe uses."""

from collections.abc import Iterator

from aworld_train.doctor.finding import Finding, fault, listed, ok, warn
from aworld_train.doctor.machine import CommandFailed, Machine
from aworld_train.doctor.needs import Needs


def check_slurm(machine: Machine, needs: Needs) -> Iterator[Finding]:
    uses = needs.launcher == "slurm"
    if machine.program("sinfo") is None:
        if uses:
            remedy = "Run this on the cluster's login node, or take another cluster.launcher."
            yield fault("slurm", True, "The recipe's launcher is slurm, and there is no `sinfo`.", remedy)
        else:
            yield ok("slurm", "No SLURM on this machine.")
    else:
        yield from _controller(machine, uses)
    yield from _allocation(machine, needs)


def _controller(machine: Machine, uses: bool) -> Iterator[Finding]:
    try:
        lines = machine.output("sinfo", "--noheader", "--format=%R %a %D").splitlines()
        jobs = machine.output("squeue", "--noheader", "--me").splitlines()
    except CommandFailed as error:
        yield fault(
            "slurm",
            uses,
            f"SLURM is installed and does not answer: {error}.",
            "See that slurmctld and munge run, and that SLURM_CONF names the right file.",
        )
        return
    partitions = {name: int(nodes) for name, state, nodes in map(str.split, lines) if state == "up"}
    if not partitions:
        yield fault("slurm", uses, "No partition of SLURM is up.", "Ask who runs the cluster (sinfo -R).")
        return
    names = listed([f"{name} ({nodes} nodes)" for name, nodes in sorted(partitions.items())])
    yield ok("slurm", f"SLURM answers: {names}; {len(jobs)} of your jobs.")


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
            yield warn("slurm", what, remedy)
        elif 0 < allocated < used:
            what = f"SLURM's allocation has {allocated} {name}, and the recipe needs {used}."
            yield fault("slurm", True, what, f"Ask for more, or set {key}={allocated}.")


def _number(machine: Machine, name: str) -> int:
    value = machine.variable(name)
    return int(value) if value.isdigit() else 0
