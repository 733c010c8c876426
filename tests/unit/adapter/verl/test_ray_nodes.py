"""Ray on the nodes of a run: who may start it, what each node is told, and what is said when a node does not come."""

import io
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from aworld_train.adapter.base import Nodes
from aworld_train.adapter.verl import ray_node, ray_nodes
from aworld_train.adapter.verl.compose import compose
from aworld_train.adapter.verl.fork_client import ADDRESS_VARIABLE, STAND_IN
from aworld_train.adapter.verl.network import network_variables
from aworld_train.adapter.verl.private_folder import PrivateFolder
from aworld_train.recipe import load

ADDRESSES = {"n1": "127.0.0.2", "n2": "127.0.0.3"}
SLURM = {"launcher": "slurm", "nodes": 2}


@pytest.fixture
def private(tmp_path: Path) -> PrivateFolder:
    folder = PrivateFolder(tmp_path / "private")
    folder.fill()
    return folder


def node_program(message: dict[str, object], **variables: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-P", "-m", "aworld_train.adapter.verl.ray_node"],
        input=json.dumps(message),
        env={**os.environ, **variables},
        text=True,
        capture_output=True,
        timeout=60,
    )


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
    variables = ray_nodes.nodes_environment(load({"cluster": SLURM}), private, nodes)
    assert variables["NCCL_SOCKET_IFNAME"] == "ib0", "what the user has chosen stays"
    assert variables["GLOO_SOCKET_IFNAME"] == "lo"
    written = Path(variables[ray_nodes.NODES_VARIABLE]).read_text()
    for secret in private.secrets().values():
        assert secret not in json.dumps(variables)
        assert secret not in written
    assert (tmp_path / "rendezvous").stat().st_mode & 0o777 == 0o700


def test_the_interface_of_an_address_that_this_machine_does_not_have_is_left_to_the_libraries() -> None:
    assert network_variables("192.0.2.77") == {"VLLM_HOST_IP": "192.0.2.77"}


def test_a_node_that_does_not_see_the_run_folder_says_so(tmp_path: Path) -> None:
    message = {"name_variable": "SLURMD_NODENAME", "addresses": ADDRESSES}
    done = node_program(message, SLURMD_NODENAME="n2", AWORLD_TRAIN_RUN_DIR=str(tmp_path / "none"))
    assert done.returncode != 0
    assert f"The node n2 does not see the run folder {tmp_path / 'none'}" in done.stderr


def test_a_node_that_is_none_of_the_run_is_refused(tmp_path: Path) -> None:
    message = {"name_variable": "SLURMD_NODENAME", "addresses": ADDRESSES}
    done = node_program(message, SLURMD_NODENAME="n9", AWORLD_TRAIN_RUN_DIR=str(tmp_path))
    assert "The node 'n9' is none of those of the run: n1, n2." in done.stderr


def test_a_private_folder_that_others_can_enter_is_not_used(tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.mkdir(mode=0o755)
    message = {
        "name_variable": "SLURMD_NODENAME",
        "addresses": ADDRESSES,
        "private": str(taken),
        "secrets": {},
    }
    done = node_program(message, SLURMD_NODENAME="n2", AWORLD_TRAIN_RUN_DIR=str(tmp_path))
    assert "is not this user's private folder" in done.stderr


@pytest.mark.parametrize("forks", [True, False])
def test_a_node_without_gpus_has_a_fork_server_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forks: bool
) -> None:
    message = {
        "name_variable": "SLURMD_NODENAME",
        "addresses": ADDRESSES,
        "private": str(tmp_path / "private"),
        "secrets": {"token": "t", "queue-key": "k"},
        "variables": {},
        "options": ["--num-cpus", "8"],
        "head": "127.0.0.2:1",
    }
    replaced: list[list[str]] = []
    environment = {"SLURMD_NODENAME": "n2", "AWORLD_TRAIN_RUN_DIR": str(tmp_path)}
    if forks:
        environment[ADDRESS_VARIABLE] = "/of the first node"
    monkeypatch.setattr(os, "environ", environment)
    monkeypatch.setattr(os, "execv", lambda _, arguments: replaced.append(arguments))
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(message)))
    ray_node.main()
    (arguments,) = replaced
    module = ray_node.__name__ if forks else "ray.scripts.scripts"
    assert arguments[arguments.index("--") + 1 :] == [
        *(sys.executable, "-P", "-m", module, "start", "--block"),
        *("--node-ip-address", "127.0.0.3", "--num-cpus", "8", "--address", "127.0.0.2:1"),
    ]
    address = f"{tmp_path}/private/forks-n2" if forks else None
    assert environment.get(ADDRESS_VARIABLE) == address


@pytest.mark.parametrize(
    ("cluster", "forks"), [({}, True), (SLURM, True), ({"launcher": "ray", "nodes": 2}, False)]
)
def test_workers_are_asked_of_a_fork_server_where_the_ray_is_the_runs_own(
    tmp_path: Path, cluster: dict[str, object], forks: bool
) -> None:
    init = compose(load({"cluster": cluster}), tmp_path)["ray_kwargs"]["ray_init"]
    interpreter = shlex.join(STAND_IN) if forks else shlex.quote(sys.executable)
    assert init["runtime_env"]["py_executable"] == interpreter


def test_a_node_that_does_not_join_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ray_nodes.ClusterError, match=r"Missing: n2 \(127\.0\.0\.3\)"):
        ray_nodes._wait(lambda: False, lambda: "n2 (127.0.0.3)", [], deadline=0.0)


def ending(code: int) -> "subprocess.Popen[bytes]":
    process = subprocess.Popen([sys.executable, "-c", f"raise SystemExit({code})"])
    process.wait(30)
    return process


def test_what_ends_before_the_nodes_have_joined_is_named() -> None:
    others = ray_nodes.StartedProgram("The others", lambda: ending(3))
    with pytest.raises(
        ray_nodes.ClusterError, match="The others ended with exit code 3 before n2 had joined"
    ):
        ray_nodes._wait(lambda: False, lambda: "n2", [others], deadline=float("inf"))


def test_a_node_for_which_rays_time_was_too_short_is_started_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ray_nodes, "RAY_SECONDS", 0.0)
    starts: list[int] = []

    def start() -> "subprocess.Popen[bytes]":
        starts.append(1)
        return ending(1)

    others = ray_nodes.StartedProgram("The others", start)
    ray_nodes._wait(lambda: len(starts) == 3, lambda: "n2", [others], deadline=float("inf"))
    assert capsys.readouterr().out.count("The others ended with exit code 1, after more than the time") == 2


def test_verl_is_given_one_list_of_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROCR_VISIBLE_DEVICES", "0,1")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    ray_nodes.drop_second_gpu_list()
    assert "ROCR_VISIBLE_DEVICES" in os.environ
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    ray_nodes.drop_second_gpu_list()
    assert "ROCR_VISIBLE_DEVICES" not in os.environ
