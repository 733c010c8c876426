"""Ray on the nodes of a run: who may start it, what each node is told, and what is said when a node does not come."""

import json
import os
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from aworld_train.adapter.base import Nodes
from aworld_train.adapter.verl import ray_nodes
from aworld_train.adapter.verl.compose import OBJECT_STORE_BYTES, compose, logical_cpus
from aworld_train.adapter.verl.fork_client import STAND_IN
from aworld_train.adapter.verl.private_folder import PrivateFolder
from aworld_train.adapter.verl.ray_nodes import network_variables
from aworld_train.recipe import load

ADDRESSES = {"n1": "127.0.0.2", "n2": "127.0.0.3"}
SLURM = {"launcher": "slurm", "nodes": 2}
HEAD = """
import socket, sys
server = socket.create_server((sys.argv[1], int(sys.argv[2])))
while True:
    server.accept()
"""
OTHERS = """
import json, pathlib, sys
pathlib.Path(sys.argv[1]).write_text(json.dumps([sys.argv[2:], json.load(sys.stdin)]))
"""


@pytest.fixture
def private(tmp_path: Path) -> PrivateFolder:
    folder = PrivateFolder(tmp_path / "private")
    folder.fill()
    return folder


def test_a_driver_that_attaches_sends_ray_no_sizes(tmp_path: Path) -> None:
    init = compose(load({"cluster": SLURM}), tmp_path)["ray_kwargs"]["ray_init"]
    assert init.pop("runtime_env")
    assert {name: value for name, value in init.items() if value is not None} == {
        "address": "auto",
        "log_to_driver": True,
    }


def test_no_variable_and_no_argument_of_the_nodes_holds_a_secret(
    tmp_path: Path, private: PrivateFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "ib0")
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    nodes = Nodes(ADDRESSES, ["srun"], "SLURMD_NODENAME", tmp_path, 20_000)
    for _ in range(2):  # it may be started again
        variables = ray_nodes.nodes_environment(load({"cluster": SLURM}), private, nodes)
    assert variables["NCCL_SOCKET_IFNAME"] == "ib0", "what the user has chosen stays"
    assert variables["GLOO_SOCKET_IFNAME"] == "lo"
    written = Path(variables[ray_nodes.NODES_VARIABLE]).read_text()
    for secret in private.secrets().values():
        assert secret not in json.dumps(variables)
        assert secret not in written
    assert (tmp_path / "rendezvous").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(("engine", "gpus"), [("vllm", 4), ("transformers", 0)])
def test_a_node_of_ray_has_the_recipe_s_sizes_and_ports_that_are_free(engine: str, gpus: int) -> None:
    device = "cuda" if gpus else "cpu"
    recipe = load(
        {"cluster": {**SLURM, "gpus_per_node": gpus or 1, "device": device}, "rollout": {"engine": engine}}
    )
    sizes: dict[str, str] = {}
    ports: dict[str, str] = {}
    options = iter(ray_nodes._ray_options(recipe))
    for option in options:
        if option == "--disable-usage-stats":
            continue
        (ports if "port" in option else sizes)[option] = next(options)
    assert ports == dict.fromkeys(
        ("--min-worker-port", "--max-worker-port", "--dashboard-agent-listen-port"), "0"
    )
    assert sizes.pop("--num-gpus") == str(recipe.cluster.gpus_per_node)
    assert sizes.pop("--num-cpus") == str(logical_cpus(recipe))
    assert sizes == ({} if gpus else {"--object-store-memory": str(OBJECT_STORE_BYTES)})


def test_the_interface_of_an_address_that_this_machine_does_not_have_is_left_to_the_libraries() -> None:
    assert network_variables("192.0.2.77") == {"VLLM_HOST_IP": "192.0.2.77"}


@pytest.mark.parametrize(
    ("cluster", "forks"), [({}, True), (SLURM, True), ({"launcher": "ray", "nodes": 2}, False)]
)
def test_workers_are_asked_of_a_fork_server_where_the_ray_is_the_runs_own(
    tmp_path: Path, cluster: dict[str, object], forks: bool
) -> None:
    init = compose(load({"cluster": cluster}), tmp_path)["ray_kwargs"]["ray_init"]
    interpreter = shlex.join(STAND_IN) if forks else shlex.quote(sys.executable)
    assert init["runtime_env"]["py_executable"] == interpreter


class Clock:
    """Stands in for ``time``."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(ray_nodes, "time", made)
    return made


def test_nodes_that_do_not_join_are_named_every_15_seconds_and_at_the_deadline(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    named: list[float] = []

    def awaited() -> str:
        named.append(clock.now)
        return "n2 (127.0.0.3)"

    with pytest.raises(ray_nodes.ClusterError, match=r"within 300 seconds\. Missing: n2 \(127\.0\.0\.3\)\."):
        ray_nodes._wait(lambda: False, awaited, [], deadline=1040.0)
    assert named == [1015.5, 1031.0, 1040.5]
    assert capsys.readouterr().out == "Waiting for n2 (127.0.0.3).\n" * 2


def ending(code: int) -> "subprocess.Popen[bytes]":
    process = subprocess.Popen([sys.executable, "-I", "-S", "-c", f"raise SystemExit({code})"])
    process.wait(30)
    return process


def test_what_ends_before_the_nodes_have_joined_is_named(clock: Clock) -> None:
    others = ray_nodes.StartedProgram("The others", lambda: ending(3))
    clock.now += ray_nodes.RAY_SECONDS - 1
    with pytest.raises(
        ray_nodes.ClusterError, match="The others ended with exit code 3 before n2 had joined"
    ):
        ray_nodes._wait(lambda: False, lambda: "n2", [others], deadline=float("inf"))


def test_a_node_for_which_rays_time_was_too_short_is_started_again(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    starts: list[float] = []

    def start() -> "subprocess.Popen[bytes]":
        starts.append(clock.now)
        clock.now += ray_nodes.RAY_SECONDS
        return ending(1)

    others = ray_nodes.StartedProgram("The others", start)
    others._began = starts[0]
    others.check(lambda: "n2")
    assert len(starts) == 2
    assert "The others ended with exit code 1, after more than the time" in capsys.readouterr().out
    with pytest.raises(ray_nodes.ClusterError):
        others.check(lambda: "n2")  # its own time has begun anew


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[ray_nodes.StartedProgram]]:
    """The programs that a test has started."""
    programs: list[ray_nodes.StartedProgram] = []

    class Program(ray_nodes.StartedProgram):
        def __init__(self, name: str, start: Callable[[], "subprocess.Popen[bytes]"]):
            super().__init__(name, start)
            programs.append(self)

    monkeypatch.setattr(ray_nodes, "StartedProgram", Program)
    monkeypatch.setattr(
        ray_nodes, "time", SimpleNamespace(monotonic=time.monotonic, sleep=lambda _: time.sleep(0.01))
    )
    yield programs
    for program in programs:
        program._process.kill()
        program._process.wait(30)


class Ray:
    """Stands in for the package: the head is ready, and n2 has joined, after so many calls that come too early."""

    def __init__(self, early: int):
        self.early, self.calls = early, list[str]()

    def init(self, *, log_to_driver: bool, **_: Any) -> None:
        assert not log_to_driver, "the process that attaches later shows what runs there"
        self.calls.append("init")
        if self.calls.count("init") <= self.early:
            raise ConnectionError

    def nodes(self) -> list[dict[str, Any]]:
        self.calls.append("nodes")
        joined = {"127.0.0.2": True, "127.0.0.3": self.calls.count("nodes") > self.early}
        return [{"NodeManagerAddress": address, "Alive": alive} for address, alive in joined.items()]

    def shutdown(self) -> None:
        self.calls.append("shutdown")


@pytest.mark.parametrize("count", [1, 2])
def test_ray_starts_on_the_first_node_and_the_others_are_sent_what_they_need(
    tmp_path: Path,
    private: PrivateFolder,
    started: list[ray_nodes.StartedProgram],
    monkeypatch: pytest.MonkeyPatch,
    count: int,
) -> None:
    commands: list[list[str]] = []
    ray_start = ray_nodes.ray_start

    def head(options: list[str], address: str, *more: str) -> list[str]:
        commands.append(ray_start(options, address, *more))
        return [sys.executable, "-I", "-S", "-c", HEAD, address, more[2]]

    start_others = ray_nodes._start_others

    def others(nodes: ray_nodes.RayNodes, address: str) -> "subprocess.Popen[bytes]":
        assert ray_nodes._listens(nodes.head, int(address.split(":")[1])), "they join a head that listens"
        return start_others(nodes, address)

    ray = Ray(early=0)
    monkeypatch.setattr(ray_nodes, "_start_others", others)
    monkeypatch.setattr(ray_nodes, "ray_start", head)
    monkeypatch.setitem(sys.modules, "ray", ray)
    for name in ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "RAY_ADDRESS"):
        monkeypatch.setenv(name, "0")
    with socket.socket() as taken:
        taken.bind(("127.0.0.2", 0))
        nodes = ray_nodes.RayNodes(
            str(private.path),
            dict(list(ADDRESSES.items())[:count]),
            [sys.executable, "-I", "-S", "-c", OTHERS, str(tmp_path / "sent")],
            "NODE",
            taken.getsockname()[1],
            ["--num-cpus", "8"],
            {"NCCL_SOCKET_IFNAME": "ib0"},
        )
        (tmp_path / "nodes.json").write_text(json.dumps(vars(nodes)))
        ray_nodes.start_ray(tmp_path / "nodes.json")
    address = os.environ["RAY_ADDRESS"]
    host, port = address.split(":")
    assert (host, int(port) > nodes.port) == ("127.0.0.2", True)
    assert commands == [
        [
            *(sys.executable, "-P", "-m", "ray.scripts.scripts", "start", "--block"),
            *("--node-ip-address", "127.0.0.2", "--num-cpus", "8"),
            *("--head", "--port", port, "--include-dashboard", "false"),
        ]
    ]
    assert ray.calls == ["init", "nodes", "shutdown"]
    assert "ROCR_VISIBLE_DEVICES" not in os.environ
    assert len(started) == count
    if count == 2:
        assert started[1]._process.wait(30) == 0
        command, message = json.loads((tmp_path / "sent").read_text())
        assert command == [sys.executable, "-P", "-m", "aworld_train.adapter.verl.ray_node"]
        assert message == {
            "head": address,
            "private": str(private.path),
            "secrets": private.secrets(),
            "addresses": ADDRESSES,
            "name_variable": "NODE",
            "options": ["--num-cpus", "8"],
            "variables": {"NCCL_SOCKET_IFNAME": "ib0"},
        }


def test_a_run_waits_for_the_head_and_every_node_and_detaches(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    ray = Ray(early=1)
    monkeypatch.setitem(sys.modules, "ray", ray)
    nodes = ray_nodes.RayNodes("", ADDRESSES, [], "", 1, [], {})
    ray_nodes._wait_for_all(nodes, [], clock.now + 2)
    assert ray.calls == ["init", "init", "nodes", "nodes", "shutdown"]
    ray.calls.clear()
    assert ray_nodes._missing(nodes) == "n2 (127.0.0.3)"


def test_a_message_to_a_command_that_has_ended_is_dropped() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    ray_nodes._send(os.fdopen(writer, "wb"), b"message")


def test_a_head_that_finds_no_free_port_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_nodes, "_PORTS_TRIED", 1)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        assert not ray_nodes._listens("127.0.0.1", port)
        with pytest.raises(ray_nodes.ClusterError, match=f"127.0.0.1, port {port} .*Address already in use"):
            ray_nodes._free_port("127.0.0.1", port)
        taken.listen()
        assert ray_nodes._listens("127.0.0.1", port)


def test_verl_is_given_one_list_of_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROCR_VISIBLE_DEVICES", "0,1")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    ray_nodes.drop_second_gpu_list()
    assert "ROCR_VISIBLE_DEVICES" in os.environ
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    ray_nodes.drop_second_gpu_list()
    assert "ROCR_VISIBLE_DEVICES" not in os.environ
