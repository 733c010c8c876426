"""A run over two nodes of a real SLURM: trained to its end across a requeue, and ended by scancel."""

import json
import os
import shlex
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.e2e.conftest import (
    CLI,
    REPOSITORY,
    SMALL,
    STARTED_BY,
    Workspace,
    command_line,
    environments_of,
    wait_for,
)
from tests.slurm_cluster import NODES, SlurmCluster, require_slurm, slurm_cluster

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

STEPS = 3
SLOW = f"reward.scorer={REPOSITORY / 'tests' / 'data' / 'scorers.py'}:slow"
RARELY = ["trainer.save_every=1000", "trainer.val_every=1000"]
SHORT = [*SMALL, *RARELY, "trainer.microbatch_size=8", "dataset.val_limit=2"]
MAX_CANCEL_SECONDS = 20


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlurmCluster]:
    require_slurm()
    with (
        tempfile.TemporaryDirectory(prefix="slurm-", dir="/tmp") as folder,
        slurm_cluster(Path(folder)) as cluster,
    ):
        monkeypatch.setenv("SLURM_CONF", str(cluster.configuration))
        yield cluster


def job_of(workspace: Workspace, name: str) -> str | None:
    record = workspace.runs / name / "launch.json"
    return json.loads(record.read_text())["job"] if record.exists() else None


def processes_of_tests() -> list[psutil.Process]:
    """Processes that the tests' runs have started, wherever SLURM has put them."""
    return [process for process in psutil.process_iter() if variable(process, STARTED_BY) == str(os.getpid())]


def variable(process: psutil.Process, name: str) -> str | None:
    """The variable of a process; of a fork, as of its fork server, a title has taken its place."""
    try:
        parents = process.parents()[: 2 if command_line(process)[0].startswith("ray::") else 0]
        found = (one.environ().get(name) for one in (process, *parents))
        return next((value for value in found if value), None)
    except (psutil.Error, IndexError):
        return None


def nodes_that_train() -> Counter[str | None]:
    """How many training processes each node has."""
    ranks = [
        process for process in processes_of_tests() if "ray::WorkerDict" in " ".join(command_line(process))
    ]
    return Counter(variable(process, "SLURMD_NODENAME") for process in ranks)


def recorded_steps(workspace: Workspace, name: str) -> list[int]:
    file = workspace.runs / name / "metrics.jsonl"
    return [row["step"] for row in workspace.metrics(name)] if file.exists() else []


def test_a_run_uses_both_nodes_and_goes_on_after_slurm_s_warning_with_each_step_once(
    workspace: Workspace, slurm: SlurmCluster
) -> None:
    process = workspace.start(
        *("train", "recipes/quickstart.yaml", "name=slurm", *SHORT),
        *(
            "--launcher",
            "slurm",
            "cluster.nodes=2",
            f"trainer.steps={STEPS}",
            SLOW,
        ),
    )
    wait_for("first step", lambda: max(recorded_steps(workspace, "slurm"), default=0) >= 1, 900, process)
    job = job_of(workspace, "slurm")
    assert job is not None
    assert nodes_that_train() == dict.fromkeys(NODES, 1)
    # As SLURM does before the limit, see tests/integration/test_slurm_jobs.py.
    slurm.command("scancel", "--batch", "--signal=USR1", job)
    wait_for("requeue", lambda: "Restarts=1" in slurm.command("scontrol", "show", "job", job), 300, process)
    out, err = process.communicate(timeout=1200)
    assert process.returncode == 0, (
        err + (workspace.runs / "slurm" / "logs" / "verl.log").read_text()[-5_000:]
    )
    assert "slurm: completed" in out
    assert workspace.summary("slurm")["status"] == "completed"
    assert "The job is requeued" in err
    manifest = json.loads((workspace.runs / "slurm" / "manifest.json").read_text())
    first, second = manifest["attempts"]
    assert first["from_step"] == 0
    assert 1 <= second["from_step"] < STEPS
    assert recorded_steps(workspace, "slurm") == list(range(STEPS + 1))
    played = Counter(line["step"] for line in workspace.episodes("slurm") if not line["validate"])
    assert played == dict.fromkeys(range(1, STEPS + 1), 16)
    checkpoint = workspace.runs / "slurm" / "checkpoints" / f"global_step_{STEPS}" / "actor"
    assert (checkpoint / "model_world_size_2_rank_1.pt").exists()
    assert f"Submitted as SLURM job {job}" in err
    assert f"step {STEPS}/{STEPS}" in err
    assert not processes_of_tests()


@pytest.mark.slow
def test_a_users_own_job_uses_its_nodes_and_scancel_ends_all_of_it(
    workspace: Workspace, slurm: SlurmCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(STARTED_BY, str(os.getpid()))
    monkeypatch.setenv("AWORLD_TRAIN_STATE", str(workspace.path / "state"))
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    command = shlex.join([*CLI, "train", "recipes/quickstart.yaml", "name=cancelled", *SHORT])
    log = workspace.path / "cancelled.log"
    options = ["--parsable", "--nodes=2", "--ntasks-per-node=1", "--exclusive", f"--chdir={workspace.path}"]
    job = slurm.command("sbatch", *options, f"--output={log}", f"--wrap=exec {command}").strip()
    deadline = time.monotonic() + 600
    while nodes_that_train() != dict.fromkeys(NODES, 1):
        assert slurm.state(job) in ("PENDING", "RUNNING", "CONFIGURING"), log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.5)
    assert job_of(workspace, "cancelled") == job
    run = processes_of_tests()
    everything = [*run, *environments_of(run)]
    assert any("aworld_train.serving" in " ".join(command_line(process)) for process in everything)
    private = Path("/tmp") / (workspace.runs / "cancelled" / "private-folder").read_text()
    assert private.exists()
    began = time.monotonic()
    slurm.command("scancel", job)
    _, alive = psutil.wait_procs(everything, timeout=MAX_CANCEL_SECONDS)
    while processes_of_tests() and time.monotonic() - began < MAX_CANCEL_SECONDS:
        time.sleep(0.2)
    assert not [command_line(process) for process in [*alive, *processes_of_tests()]]
    assert not private.exists()
    assert workspace.summary("cancelled")["status"] == "interrupted"


@pytest.fixture(autouse=True)
def _no_job_outlives_its_test() -> Iterator[None]:
    yield
    for process in processes_of_tests():
        process.send_signal(signal.SIGKILL)
