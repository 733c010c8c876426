"""A machine that joins the Ray of a run: which one it is, what it is told, and what stands there already."""

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from aworld_train import process_supervisor
from aworld_train.adapter.verl import fork_server, ray_node
from aworld_train.adapter.verl.fork_client import ADDRESS_VARIABLE
from aworld_train.adapter.verl.private_folder import PrivateFolder
from aworld_train.adapter.verl.ray_nodes import JOB_ON_NODES, ClusterError

SECRETS = {"token": "t", "queue-key": "k"}


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """That of the second node."""
    variables = {"SLURMD_NODENAME": "n2", "AWORLD_TRAIN_RUN_DIR": str(tmp_path)}
    monkeypatch.setattr(os, "environ", variables)
    return variables


@pytest.fixture
def join(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """Joins this machine, and returns the command that it turns into."""
    message = {
        "name_variable": "SLURMD_NODENAME",
        "addresses": {"n1": "127.0.0.2", "n2": "127.0.0.3"},
        "private": str(tmp_path / "private"),
        "secrets": SECRETS,
        "variables": {"NCCL_SOCKET_IFNAME": "ib0"},
        "options": ["--num-cpus", "8"],
        "head": "127.0.0.2:1",
    }

    def join() -> list[str]:
        replaced: list[list[str]] = []
        monkeypatch.setattr(os, "execv", lambda _, arguments: replaced.append(arguments))
        monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(message)))
        ray_node.main()
        (arguments,) = replaced
        return arguments

    return join


@pytest.mark.parametrize("forks", [True, False])
def test_a_node_turns_into_ray_under_a_supervisor_and_without_gpus_has_a_fork_server_of_its_own(
    tmp_path: Path, environment: dict[str, str], join: Callable[[], list[str]], forks: bool
) -> None:
    if forks:
        environment[ADDRESS_VARIABLE] = "/of the first node"
    parent = process_supervisor.ProcessIdentity.of(os.getppid())
    module = ray_node.__name__ if forks else "ray.scripts.scripts"
    assert join() == [
        *(sys.executable, "-P", process_supervisor.__file__, f"--owner={parent}"),
        *(f"--remove={tmp_path}/private", "--"),
        *(sys.executable, "-P", "-m", module, "start", "--block"),
        *("--node-ip-address", "127.0.0.3", "--num-cpus", "8", "--address", "127.0.0.2:1"),
    ]
    address = f"{tmp_path}/private/forks-n2" if forks else None
    assert environment.get(ADDRESS_VARIABLE) == address


def test_a_node_has_the_run_s_secrets_its_own_address_and_the_chosen_interface(
    tmp_path: Path, environment: dict[str, str], join: Callable[[], list[str]]
) -> None:
    environment |= {"CUDA_VISIBLE_DEVICES": "0", "ROCR_VISIBLE_DEVICES": "0"}
    join()
    assert PrivateFolder(tmp_path / "private").secrets() == SECRETS
    assert (tmp_path / "private").stat().st_mode & 0o777 == 0o700
    assert environment["VLLM_HOST_IP"] == "127.0.0.3"
    assert environment["GLOO_SOCKET_IFNAME"] == "lo"
    assert environment["NCCL_SOCKET_IFNAME"] == "ib0", "what the user has chosen stays"
    assert "ROCR_VISIBLE_DEVICES" not in environment


def test_the_private_folder_of_another_node_on_this_machine_is_shared_and_left_to_that(
    tmp_path: Path, environment: dict[str, str], join: Callable[[], list[str]]
) -> None:
    (tmp_path / "private").mkdir(mode=0o700)
    assert not [argument for argument in join() if argument.startswith("--remove")]
    assert list((tmp_path / "private").iterdir()) == []


@pytest.mark.parametrize("made", ["open to its group", "a link", "a file", "of another user"])
def test_a_private_folder_that_may_be_somebody_else_s_is_not_used(
    tmp_path: Path,
    environment: dict[str, str],
    join: Callable[[], list[str]],
    monkeypatch: pytest.MonkeyPatch,
    made: str,
) -> None:
    private = tmp_path / "private"
    if made == "a link":
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        private.symlink_to(tmp_path / "elsewhere")
    elif made == "a file":
        private.touch(mode=0o600)
    else:
        private.mkdir(mode=0o700)
    if made == "open to its group":
        private.chmod(0o710)
    elif made == "of another user":
        monkeypatch.setattr(os, "getuid", lambda: private.stat().st_uid + 1)
    with pytest.raises(ClusterError, match="private exists on this node and is not this user's private"):
        join()


def test_a_node_that_is_none_of_the_run_is_refused(
    environment: dict[str, str], join: Callable[[], list[str]]
) -> None:
    environment["SLURMD_NODENAME"] = "n9"
    with pytest.raises(ClusterError, match=r"The node 'n9' is none of those of the run: n1, n2\."):
        join()


def test_the_program_of_a_node_that_does_not_see_the_run_folder_says_so(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-m", ray_node.__name__],
        input=json.dumps({"name_variable": "NODE", "addresses": {"n2": "127.0.0.3"}}),
        env={**os.environ, "NODE": "n2", "AWORLD_TRAIN_RUN_DIR": str(tmp_path / "none")},
        text=True,
        capture_output=True,
        timeout=60,
    )
    assert done.returncode != 0
    assert f"The node n2 does not see the run folder {tmp_path / 'none'}" in done.stderr


def test_ray_s_command_line_is_the_main_program_of_a_fork_that_is_prepared_as_the_run_s_processes_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    steps: list[object] = []
    for name in ("name_vllm_cpu", "import_faster"):
        monkeypatch.setattr(ray_node, name, lambda name=name: steps.append(name))

    def run(main: Callable[[], None], job: int) -> None:
        steps.append(job)
        main()

    monkeypatch.setattr(fork_server, "run", run)
    (tmp_path / "command_line_of_ray.py").write_text("import sys\nprint(__name__, *sys.argv)")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(ray_node, "RAY_MODULE", "command_line_of_ray")
    monkeypatch.setattr(sys, "argv", ["node", "start", "--block"])
    ray_node.run_ray()
    assert steps == ["name_vllm_cpu", "import_faster", JOB_ON_NODES]
    assert capsys.readouterr().out == f"__main__ {tmp_path}/command_line_of_ray.py start --block\n"


def test_no_port_is_opened_for_ray_s_client() -> None:
    settings = SimpleNamespace(ray_client_server_port=10001)
    ray_node.without_ray_client(settings, head=True)
    assert settings.ray_client_server_port is None
