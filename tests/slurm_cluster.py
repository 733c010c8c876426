"""A SLURM cluster of two nodes on this machine: munged, slurmctld and two slurmd, as children of the tests."""

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.environments import is_listening

NODES = ("n1", "n2")
PROGRAMS = ("munged", "mungekey", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "scancel")
_START_SECONDS = 30.0
_JOBS_END_SECONDS = 40.0
_CONFIGURATION = """
ClusterName=tests
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0
ReturnToService=2
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
SlurmdParameters=config_overrides
GresTypes=gpu
{nodes}
PartitionName=debug Nodes={names} Default=YES MaxTime=INFINITE State=UP
"""


@dataclass(frozen=True)
class SlurmCluster:
    """A running cluster, whose commands are found through ``configuration``."""

    configuration: Path

    def command(self, *arguments: str) -> str:
        """What one of SLURM's commands prints."""
        environment = {**os.environ, "SLURM_CONF": str(self.configuration)}
        done = subprocess.run(arguments, env=environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def state(self, job: str) -> str:
        """The state of a job, as PENDING or RUNNING."""
        return self.command("squeue", "-h", "-t", "all", "-o", "%T", "-j", job).strip()


def require_slurm() -> None:
    """Skip a test where SLURM is not installed, or fail it where it has to be."""
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if missing and "AWORLD_TRAIN_TESTS_NEED_SLURM" in os.environ:
        pytest.fail(f"SLURM is not installed: {', '.join(missing)}")
    if missing:
        pytest.skip(f"needs SLURM (apt install slurm-wlm munge): {', '.join(missing)}")


@contextmanager
def slurm_cluster(folder: Path) -> Iterator[SlurmCluster]:
    """A cluster that ends with the context; its files are in ``folder``, whose path is short."""
    (folder / "state").mkdir()
    key, configuration = folder / "munge.key", folder / "slurm.conf"
    subprocess.run(["mungekey", "--create", f"--keyfile={key}"], check=True)
    port, *node_ports = free_ports(1 + len(NODES))
    host = socket.gethostname().split(".")[0]
    for name in NODES:
        (folder / name).mkdir()
        (folder / f"gpu-{name}").touch()
    user = psutil.Process().username()
    nodes = "\n".join(
        f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={node_port} CPUs=2 RealMemory=4000 Gres=gpu:2"
        for name, node_port in zip(NODES, node_ports, strict=True)
    )
    configuration.write_text(
        _CONFIGURATION.format(
            host=host, port=port, user=user, folder=folder, nodes=nodes, names=",".join(NODES)
        )
    )
    (folder / "gres.conf").write_text("Name=gpu File=/dev/null,/dev/zero\n")
    daemons = [
        [
            *("munged", "--foreground", "--force", f"--key-file={key}", f"--socket={folder}/munge.socket"),
            *(
                f"--pid-file={folder}/munge.pid",
                f"--log-file={folder}/munge.log",
                f"--seed-file={folder}/seed",
            ),
        ],
        ["slurmctld", "-D", "-f", str(configuration)],
        *(["slurmd", "-D", "-f", str(configuration), "-N", name] for name in NODES),
    ]
    running: list[subprocess.Popen[bytes]] = []
    cluster = SlurmCluster(configuration)
    try:
        for command in daemons:
            running.append(_start(command, folder))
            if command[0] == "munged":
                _wait(lambda: is_listening(folder / "munge.socket"), running, folder)
        _wait(lambda: _idle(cluster) == len(NODES), running, folder)
        yield cluster
    finally:
        _end(cluster, running)


def _end(cluster: SlurmCluster, running: "Sequence[subprocess.Popen[bytes]]") -> None:
    """End the jobs, then the daemons, then what a job has left."""
    deadline = time.monotonic() + _JOBS_END_SECONDS
    with contextlib.suppress(AssertionError, subprocess.TimeoutExpired):
        cluster.command("scancel", f"--user={psutil.Process().username()}")
        while cluster.command("squeue", "-h") and time.monotonic() < deadline:
            time.sleep(0.2)
    for process in reversed(running):
        process.terminate()
        process.wait(30)
    for left in psutil.process_iter(["name"]):
        with contextlib.suppress(psutil.Error):
            is_step = left.info["name"].startswith("slurmstepd")
            if is_step and left.environ().get("SLURM_CONF") == str(cluster.configuration):
                left.kill()


def _start(command: Sequence[str], folder: Path) -> "subprocess.Popen[bytes]":
    with (folder / f"{command[0]}{command[-1] if command[-2] == '-N' else ''}.out").open("wb") as output:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)


def _idle(cluster: SlurmCluster) -> int:
    try:
        return cluster.command("sinfo", "-h", "-N", "-o", "%T").split().count("idle")
    except AssertionError:
        return 0


def _wait(condition: object, running: "Sequence[subprocess.Popen[bytes]]", folder: Path) -> None:
    assert callable(condition)
    deadline = time.monotonic() + _START_SECONDS
    while not condition():
        ended = any(process.poll() is not None for process in running)
        if ended or time.monotonic() > deadline:
            logs = "\n".join(file.read_text(errors="replace")[-2000:] for file in folder.glob("*.out"))
            raise AssertionError(f"SLURM did not start:\n{logs}")
        time.sleep(0.1)


def free_ports(count: int) -> list[int]:
    """Ports that nothing listened on a moment ago, below those that the system gives to clients."""
    free: list[int] = []
    for port in range(16_000 + os.getpid() % 400 * 10, 20_000):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            free.append(port)
        if len(free) == count:
            return free
    raise AssertionError("no free ports")
