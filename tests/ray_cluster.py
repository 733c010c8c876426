"""A Ray cluster of several nodes on this machine, with a token: every port is on the loopback address.

Each node is a ``ray start --block`` of its own, and is ended by its pid.
"""

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psutil

NODES = 2
CPUS_PER_NODE = 8
START_SECONDS = 300
"""Of a node. Ray itself gives it 30; on a busy machine it may have to be started again."""
STOP_SECONDS = 20
_OBJECT_STORE_BYTES = 150_000_000


@dataclass
class RayCluster:
    """A running cluster.

    Attributes:
        address: URL of its Jobs API.
        token: Its token.
        folder: Ray's own folder, with all its logs.
        head: Address of its head, for drivers.
        hidden: A folder that the nodes after the head do not see; None where the system cannot hide it.
        nodes: The processes of its nodes, the head first.
    """

    address: str
    token: str = field(repr=False)
    folder: Path
    head: str
    hidden: Path | None = None
    nodes: "list[subprocess.Popen[bytes]]" = field(default_factory=list)

    def variables(self) -> dict[str, str]:
        """The environment variables of a process that submits jobs."""
        return {"RAY_ADDRESS": self.address, "RAY_AUTH_TOKEN_PATH": str(self.folder / "token")}

    def living_nodes(self) -> int:
        """How many nodes the cluster counts itself."""
        response = httpx.get(
            f"{self.address}/api/cluster_status",
            headers={"Authorization": f"Bearer {self.token}"},
            timeout=10,
            trust_env=False,
        )
        status = response.json()["data"]["clusterStatus"]["autoscalerReport"]
        return sum(status["activeNodes"].values())

    def processes(self) -> list[list[psutil.Process]]:
        """The living processes of each node, with all that its jobs have started."""
        return [_tree(node.pid) for node in self.nodes]


@contextmanager
def ray_cluster(nodes: int = NODES, *, gpus: int = 1, cpus: int = CPUS_PER_NODE) -> Iterator[RayCluster]:
    """A cluster for the time of the block.

    Args:
        nodes: Their number.
        gpus: Of each node; Ray counts them and does not look whether they are there.
        cpus: Of each node, counted too.
    """
    sizes = (f"--num-gpus={gpus}", f"--num-cpus={cpus}")
    # Not below pytest's folder, whose paths are too long for Ray's sockets.
    folder = Path(tempfile.mkdtemp(prefix="awtr-"))
    token = secrets.token_hex(32)
    (folder / "token").touch(mode=0o600)
    (folder / "token").write_text(token)
    head, dashboard, client = _free_ports(3)
    cluster = RayCluster(
        f"http://127.0.0.1:{dashboard}", token, folder, f"{_node_ip(0)}:{head}", _hideable(folder / "hidden")
    )
    try:
        _start_node(
            cluster,
            1,
            *sizes,
            "--head",
            f"--port={head}",
            "--dashboard-host=127.0.0.1",
            f"--dashboard-port={dashboard}",
            f"--ray-client-server-port={client}",
            f"--temp-dir={folder}",
        )
        for number in range(2, nodes + 1):
            _start_node(cluster, number, *sizes, f"--address={cluster.head}")
        yield cluster
    finally:
        _stop(cluster)
        shutil.rmtree(folder, ignore_errors=True)


def _hideable(folder: Path) -> Path | None:
    """The folder, made, if this user may mount something over it in a namespace of a process."""
    folder.mkdir()
    may_hide = (
        shutil.which("unshare")
        and not subprocess.run(
            [*_hiding(folder), "true"], capture_output=True, timeout=10, check=False
        ).returncode
    )
    return folder if may_hide else None


def _hiding(folder: Path) -> list[str]:
    """The command before which the folder is empty for what it runs."""
    return ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"', str(folder)]


def _start_node(cluster: RayCluster, number: int, *options: str) -> None:
    """Start node ``number``, until the cluster has as many."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        cluster.nodes.append(_node(cluster, number, *options))
        while cluster.nodes[-1].poll() is None:
            with suppress(httpx.HTTPError, ValueError, KeyError, TypeError):
                if cluster.living_nodes() >= number:
                    return
            if time.monotonic() > deadline:
                raise AssertionError(f"no {number} nodes within {START_SECONDS} s")
            time.sleep(0.3)
        cluster.nodes.pop()
        if time.monotonic() > deadline:
            raise AssertionError((cluster.folder / f"node-{number}.log").read_text()[-4000:])


def _node(cluster: RayCluster, number: int, *options: str) -> "subprocess.Popen[bytes]":
    (agent,) = _free_ports(1)
    environment = {
        **os.environ,
        # The job's `python` is that of the PATH of its node.
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(Path(__file__).parents[1]),
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(cluster.folder / "token"),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_enable_metrics_collection": "false",
        # A job's processes have variables of their own, so those that wait for any job are never used.
        "RAY_prestart_worker_first_driver": "false",
    }
    hiding = _hiding(cluster.hidden) if number > 1 and cluster.hidden else []
    with (cluster.folder / f"node-{number}.log").open("ab") as output:
        return subprocess.Popen(
            [
                *hiding,
                *(sys.executable, "-P", "-m", "ray.scripts.scripts", "start", "--block"),
                f"--node-ip-address={_node_ip(number - 1)}",
                f"--object-store-memory={_OBJECT_STORE_BYTES}",
                f"--dashboard-agent-listen-port={agent}",
                "--disable-usage-stats",
                *options,
            ],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def _node_ip(number: int) -> str:
    """Not 127.0.0.1, which Ray replaces by an outside address of the machine."""
    return f"127.0.0.{2 + number}"


def _tree(pid: int) -> list[psutil.Process]:
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _stop(cluster: RayCluster) -> None:
    processes = [process for node in cluster.processes() for process in node]
    for node in reversed(cluster.nodes):
        if node.poll() is None:
            node.send_signal(signal.SIGTERM)
    _, alive = psutil.wait_procs(processes, timeout=STOP_SECONDS)
    for process in alive:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    for node in cluster.nodes:
        node.wait(STOP_SECONDS)


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports
