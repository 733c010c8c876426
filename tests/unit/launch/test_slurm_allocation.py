"""The nodes of an allocation, and the addresses at which they reach each other, as SLURM's commands say it."""

import ipaddress
import socket
from pathlib import Path

import pytest

from aworld_train.errors import UsageError
from aworld_train.launch.slurm.allocation import current_allocation, nodes_for_run
from aworld_train.launch.slurm_variables import inside_allocation

SCONTROL = """#!/bin/bash
if [[ $2 == hostnames ]]; then printf '%s\\n' n1 n2 n3; exit; fi
for name in ${4//,/ }; do
    var=ADDRESS_$name
    echo "NodeName=$name Arch=x86_64 NodeAddr=${!var} NodeHostName=$name Port=1 State=IDLE"
done
"""
JOB = {
    "SLURM_JOB_ID": "41",
    "SLURM_JOB_NODELIST": "n[1-3]",
    "SLURMD_NODENAME": "n2",
    "SLURM_GPUS_ON_NODE": "8",
}


@pytest.fixture(autouse=True)
def _scontrol(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scontrol whose nodes have the addresses that the variables ADDRESS_<node> give."""
    program = tmp_path / "bin" / "scontrol"
    program.parent.mkdir()
    program.write_text(SCONTROL)
    program.chmod(0o700)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")


def addresses(monkeypatch: pytest.MonkeyPatch, count: int, **given: str) -> dict[str, str]:
    for name, address in given.items():
        monkeypatch.setenv(f"ADDRESS_{name}", address)
    return dict(nodes_for_run(current_allocation(JOB), count, Path("/shared")).addresses)


def test_a_number_of_a_job_alone_is_no_allocation() -> None:
    assert inside_allocation(JOB)
    assert not inside_allocation({"SLURM_JOB_ID": "41"})


def test_the_node_that_the_run_is_on_comes_first() -> None:
    allocation = current_allocation(JOB)
    assert allocation.nodes == ("n2", "n1", "n3")
    assert (allocation.job, allocation.restarts) == ("41", 0)
    assert current_allocation({**JOB, "SLURM_RESTART_COUNT": "2"}).restarts == 2


def test_a_process_on_none_of_the_nodes_is_refused_with_what_to_do() -> None:
    outside = {name: value for name, value in JOB.items() if name != "SLURMD_NODENAME"}
    with pytest.raises(UsageError, match=r"none of its nodes \(n1, n2, n3\).*srun"):
        current_allocation(outside)


def test_a_run_asks_for_no_more_nodes_than_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"asks for 4 nodes .* job 41 has 3"):
        addresses(monkeypatch, 4)


def test_nodes_have_the_addresses_by_which_slurm_knows_them(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"n1": "192.0.2.11", "n2": "192.0.2.12", "n3": "192.0.2.13"}
    assert addresses(monkeypatch, 3, **given) == {name: given[name] for name in ("n2", "n1", "n3")}


def test_a_node_that_knows_itself_by_loopback_has_the_address_that_others_reach(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.11", 9))
        outside = probe.getsockname()[0]
    assert addresses(monkeypatch, 2, n2="127.0.1.1", n1="192.0.2.11") == {"n2": outside, "n1": "192.0.2.11"}


def test_nodes_that_are_one_machine_have_loopback_addresses_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = addresses(monkeypatch, 2, n2="127.0.0.1", n1="127.0.0.1")
    assert len({*given.values()}) == 2
    assert all(ipaddress.ip_address(address).is_loopback for address in given.values())
    assert "127.0.0.1" not in given.values()


def test_a_run_on_one_node_stays_on_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    (address,) = addresses(monkeypatch, 1, n2="192.0.2.12").values()
    assert ipaddress.ip_address(address).is_loopback


def test_jobs_prefer_ports_of_their_own() -> None:
    ports = {
        nodes_for_run(current_allocation(JOB | {"SLURM_JOB_ID": str(job)}), 1, Path("/s")).port
        for job in range(200)
    }
    assert len(ports) == 200
    assert all(20_000 <= port < 32_000 for port in ports)


def test_the_other_nodes_get_one_task_each(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("n1", "n2", "n3"):
        monkeypatch.setenv(f"ADDRESS_{name}", f"192.0.2.{name[1]}")
    command = nodes_for_run(current_allocation(JOB), 3, Path("/s")).command
    assert command[0] == "srun"
    assert {"--nodes=2", "--ntasks=2", "--nodelist=n1,n3"} <= {*command}
