"""Ray over several machines: a head on the first node of a run, and one more Ray node on each of the others.

The process that starts VeRL (``main``) brings Ray up before it imports VeRL, which attaches by ``RAY_ADDRESS``. What
ends that process ends everything below it (see ``process_supervisor``). Secrets reach the other nodes through the
standard input of the command that runs there, and appear in no argument and no file of the run folder.
"""

import ipaddress
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

import psutil

from aworld_train.adapter.base import Nodes
from aworld_train.adapter.verl.compose import OBJECT_STORE_BYTES, logical_cpus
from aworld_train.adapter.verl.private_folder import PrivateFolder
from aworld_train.adapter.verl.worker_setup import RENDEZVOUS_VARIABLE
from aworld_train.recipe.device import on_cpu
from aworld_train.recipe.schema import Recipe

NODES_VARIABLE = "AWORLD_TRAIN_NODES"
MAX_START_SECONDS = 300.0
"""Until every node has joined: each imports Ray, from a file system that many machines share."""
NODE_MODULE = "aworld_train.adapter.verl.ray_node"
"""Runs Ray on a node after the first."""
RAY_MODULE = "ray.scripts.scripts"
JOB_ON_NODES = 2
"""Which program that joins Ray on the nodes is the run: the first looks which nodes have joined."""
RAY_SECONDS = 30.0
"""What Ray gives a node to start, whatever else the machine and its file system do; nothing sets that."""
_NOTE_SECONDS = 15.0
_PORTS_TRIED = 50


class ClusterError(Exception):
    """The name is that under which a log's errors are looked for."""


class StartedProgram:
    """A program that Ray runs in; it is started again where it ends after the time that Ray gives a node."""

    def __init__(self, name: str, start: Callable[[], "subprocess.Popen[bytes]"]):
        self._name, self._start = name, start
        self._process, self._began = start(), time.monotonic()

    def check(self, awaited: Callable[[], str]) -> None:
        """Raise ClusterError if it has ended before what is ``awaited``."""
        code = self._process.poll()
        if code is None:
            return
        if time.monotonic() - self._began < RAY_SECONDS:
            raise ClusterError(
                f"{self._name} ended with exit code {code} before {awaited()} had joined. The lines above say why."
            )
        _say(
            f"{self._name} ended with exit code {code}, after more than the time that Ray gives a node, and is started "
            "again."
        )
        self._process, self._began = self._start(), time.monotonic()


@dataclass(frozen=True)
class RayNodes:
    """How Ray is started on ``Nodes``, the first of which is the head; ``variables`` go before what a node has.

    The private folder has the same path on every node.
    """

    private: str
    addresses: Mapping[str, str]
    command: Sequence[str]
    name_variable: str
    port: int
    options: Sequence[str]
    variables: Mapping[str, str]

    @property
    def head(self) -> str:
        return next(iter(self.addresses.values()))


def nodes_environment(recipe: Recipe, private: PrivateFolder, nodes: Nodes) -> dict[str, str]:
    """Variables by which ``main`` starts Ray on the nodes; writes the file that they name into the private folder."""
    ray_nodes = RayNodes(
        str(private.path),
        dict(nodes.addresses),
        list(nodes.command),
        nodes.name_variable,
        nodes.port,
        _ray_options(recipe),
        chosen_interfaces(),
    )
    file = private.path / "nodes.json"
    file.write_text(json.dumps(asdict(ray_nodes)))
    rendezvous = nodes.shared / "rendezvous"
    rendezvous.mkdir(mode=0o700, exist_ok=True)
    return {
        NODES_VARIABLE: str(file),
        RENDEZVOUS_VARIABLE: str(rendezvous),
        # Called by `ray start`.
        "RAY_START_HOOK": f"{NODE_MODULE}.without_ray_client",
        **network_variables(ray_nodes.head),
        **ray_nodes.variables,
    }


def _ray_options(recipe: Recipe) -> list[str]:
    options = ["--num-gpus", str(recipe.cluster.gpus_per_node), "--disable-usage-stats"]
    options += ["--num-cpus", str(logical_cpus(recipe))]
    # Each process chooses a free port, because several nodes may be on one machine.
    options += ["--min-worker-port", "0", "--max-worker-port", "0", "--dashboard-agent-listen-port", "0"]
    if on_cpu(recipe):
        options += ["--object-store-memory", str(OBJECT_STORE_BYTES)]
    return options


def ray_start(options: Sequence[str], address: str, *more: str, module: str = RAY_MODULE) -> list[str]:
    """The command that runs Ray on this machine, under this IP address, until it is ended; ``module`` is Ray's."""
    return [
        *(sys.executable, "-P", "-m", module, "start", "--block"),
        *("--node-ip-address", address),
        *options,
        *more,
    ]


def start_ray(file: Path) -> None:
    nodes = RayNodes(**json.loads(file.read_text()))
    drop_second_gpu_list()
    deadline = time.monotonic() + MAX_START_SECONDS
    port = _free_port(nodes.head, nodes.port)
    address = f"{nodes.head}:{port}"
    head_options = ("--head", "--port", str(port), "--include-dashboard", "false")
    programs = [
        StartedProgram(
            "Ray's head on this node",
            lambda: subprocess.Popen(ray_start(nodes.options, nodes.head, *head_options)),
        )
    ]
    _wait(
        lambda: _listens(nodes.head, port),
        lambda: f"Ray's head, which is to listen at {address}",
        programs,
        deadline,
    )
    if len(nodes.addresses) > 1:
        programs.append(StartedProgram("Ray on the other nodes", lambda: _start_others(nodes, address)))
    os.environ["RAY_ADDRESS"] = address
    _wait_for_all(nodes, programs, deadline)


def drop_second_gpu_list() -> None:
    """Drop the list of GPUs for AMD's runtime where there is CUDA's, which AMD's programs read too.

    SLURM sets both whatever the GPUs are, and VeRL refuses to start with both.
    """
    if "CUDA_VISIBLE_DEVICES" in os.environ:
        os.environ.pop("ROCR_VISIBLE_DEVICES", None)


def _start_others(nodes: RayNodes, address: str) -> "subprocess.Popen[bytes]":
    others = subprocess.Popen(
        [*nodes.command, sys.executable, "-P", "-m", NODE_MODULE], stdin=subprocess.PIPE
    )
    message = {
        "head": address,
        "private": nodes.private,
        "secrets": PrivateFolder(Path(nodes.private)).secrets(),
        "addresses": nodes.addresses,
        "name_variable": nodes.name_variable,
        "options": nodes.options,
        "variables": nodes.variables,
    }
    assert others.stdin is not None
    _send(others.stdin, json.dumps(message).encode())
    return others


def _send(stream: IO[bytes], message: bytes) -> None:
    try:
        stream.write(message)
        stream.close()
    except BrokenPipeError:
        pass  # the command has ended, which `_wait` reports


def _wait_for_all(nodes: RayNodes, programs: Sequence[StartedProgram], deadline: float) -> None:
    import ray

    _wait(_attached, lambda: f"the head {nodes.head}", programs, deadline)
    try:
        _wait(lambda: not _missing(nodes), lambda: _missing(nodes), programs, deadline)
    finally:
        ray.shutdown()


def _attached() -> bool:
    import ray

    try:
        ray.init(log_to_driver=False, logging_level="WARNING")
    except (ConnectionError, RuntimeError):
        return False
    return True


def _missing(nodes: RayNodes) -> str:
    import ray

    joined = {node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]}
    return ", ".join(
        f"{name} ({address})" for name, address in nodes.addresses.items() if address not in joined
    )


def _wait(
    done: Callable[[], object],
    awaited: Callable[[], str],
    programs: Sequence[StartedProgram],
    deadline: float,
) -> None:
    next_note = time.monotonic() + _NOTE_SECONDS
    while not done():
        for program in programs:
            program.check(awaited)
        now = time.monotonic()
        if now > deadline:
            raise ClusterError(
                f"Not all nodes joined Ray within {MAX_START_SECONDS:.0f} seconds. Missing: {awaited()}."
            )
        if now > next_note:
            next_note = now + _NOTE_SECONDS
            _say(f"Waiting for {awaited()}.")
        time.sleep(0.5)


def _say(sentence: str) -> None:
    sys.stdout.write(f"{sentence}\n")
    sys.stdout.flush()


def _listens(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), timeout=1).close()
    except OSError:
        return False
    return True


def _free_port(address: str, preferred: int) -> int:
    reason: OSError | None = None
    for port in range(preferred, preferred + _PORTS_TRIED):
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as probe:
            try:
                probe.bind((address, port))
            except OSError as error:
                reason = error
                continue
            return port
    raise ClusterError(
        f"Ray's head cannot listen at {address}, port {preferred} or one of the next {_PORTS_TRIED}: {reason}."
    )


INTERFACE_VARIABLES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
_LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"


def network_variables(address: str) -> dict[str, str]:
    interface = _interface(address)
    return {"VLLM_HOST_IP": address, **(dict.fromkeys(INTERFACE_VARIABLES, interface) if interface else {})}


def chosen_interfaces() -> dict[str, str]:
    return {name: os.environ[name] for name in INTERFACE_VARIABLES if os.environ.get(name)}


def _interface(address: str) -> str | None:
    """The network interface with this address; None if the libraries have to choose one."""
    if ipaddress.ip_address(address).is_loopback:
        return _LOOPBACK
    for name, interface_addresses in psutil.net_if_addrs().items():
        if any(entry.address == address for entry in interface_addresses):
            return str(name)
    return None
