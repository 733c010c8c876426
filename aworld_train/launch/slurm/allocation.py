"""The allocation that this process runs in: which nodes it has, and how they reach each other."""

import ipaddress
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from aworld_train.adapter.base import Nodes
from aworld_train.errors import AworldTrainError, UsageError
from aworld_train.launch.slurm import scheduler

_FIRST_PORT = 20_000
_PORTS = 12_000  # the last is below those that Linux gives to clients
_PORTS_PER_JOB = 60
_ANY_PORT = 9  # no packet is sent to it


@dataclass(frozen=True)
class Allocation:
    """Nodes that SLURM has given to a job; this process runs on the first."""

    job: str
    nodes: Sequence[str]
    restarts: int


def current_allocation(environment: Mapping[str, str] = os.environ) -> Allocation:
    job = environment["SLURM_JOB_ID"]
    try:
        names = scheduler.node_names(environment["SLURM_JOB_NODELIST"])
    except AworldTrainError as error:
        raise type(error)(
            f"{error.message} SLURM was asked because SLURM_JOB_ID is {job}: unset it where that job has ended."
        ) from error
    current = environment.get("SLURMD_NODENAME")
    if current not in names:
        raise UsageError(
            f"This process belongs to the SLURM job {job} but runs on none of its nodes ({', '.join(names)}). Start it "
            "on one, with `srun --overlap --nodes=1 --ntasks=1 --pty` before the command, or submit it with sbatch. To "
            "submit a job of its own, unset SLURM_JOB_ID."
        )
    return Allocation(
        job,
        (current, *(name for name in names if name != current)),
        int(environment.get("SLURM_RESTART_COUNT", "0")),
    )


def nodes_for_run(allocation: Allocation, count: int, shared: Path) -> Nodes:
    """The first ``count`` nodes as a run uses them; every node can reach ``shared``, a folder with mode 0700."""
    names = allocation.nodes[:count]
    if len(names) < count:
        raise UsageError(
            f"The recipe asks for {count} nodes (cluster.nodes), and the SLURM job {allocation.job} has {len(names)}: "
            f"{', '.join(names)}."
        )
    others = names[1:]
    command = [
        *("srun", "--overlap", f"--nodes={len(others)}", f"--ntasks={len(others)}", "--ntasks-per-node=1"),
        *(f"--nodelist={','.join(others)}", "--export=ALL", "--cpu-bind=none", "--mpi=none", "--mem=0"),
        *("--kill-on-bad-exit=1", "--label", "--quiet"),
    ]
    port = _FIRST_PORT + int(allocation.job) * _PORTS_PER_JOB % _PORTS
    return Nodes(_addresses(names), command, "SLURMD_NODENAME", shared, port)


def _addresses(names: Sequence[str]) -> dict[str, str]:
    """The IP address of each node on the network that the nodes share; the first node is this one."""
    first, *others = names
    if not others:
        return {first: _loopback(0)}
    addresses = {name: _resolved(name, address) for name, address in scheduler.node_addresses(names).items()}
    addresses = {name: addresses[name] for name in names}
    if len(set(addresses.values())) == 1:  # one machine plays all nodes
        return {name: _loopback(position) for position, name in enumerate(names)}
    if ipaddress.ip_address(addresses[first]).is_loopback:
        # Many distributions resolve a machine's own name to 127.0.1.1.
        addresses[first] = _address_towards(addresses[others[0]])
    return addresses


def _loopback(position: int) -> str:
    """An address on loopback; Ray does not use 127.0.0.1 itself for a cluster, but an outside address in its place."""
    return f"127.0.0.{position + 2}"


def _resolved(name: str, address: str) -> str:
    try:
        return str(socket.getaddrinfo(address, None, family=socket.AF_INET)[0][4][0])
    except OSError as error:
        raise UsageError(f"The address {address} of the node {name} cannot be resolved: {error}.") from error


def _address_towards(other: str) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((other, _ANY_PORT))
        return str(probe.getsockname()[0])
