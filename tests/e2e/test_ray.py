"""Runs on a Ray cluster of two nodes with a token: a job outlives its client, and ends when it is told to."""

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from aworld_train.errors import TrainingFailure, UsageError
from aworld_train.launch import JobState, launcher_of, read_record
from aworld_train.launch.attach import attach
from tests.e2e.conftest import Workspace, wait_for
from tests.ray_cluster import NODES, RayCluster, ray_cluster

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

LAUNCH = [
    *("--launcher", "ray", "cluster.nodes=2"),
    *("trainer.batch_size=4", "rollout.n=4", "trainer.microbatch_size=8"),
    *("trainer.save_every=1", "dataset.val_limit=2"),
]
CANARY = "hf_canary$HOME-9876"
FOUR = ["cluster.nodes=4", "trainer.microbatch_size=4"]
MAX_STOP_SECONDS = 20
TRAINING_SECONDS = 900


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    with ray_cluster() as running:
        yield running


@pytest.fixture(autouse=True)
def client(cluster: RayCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of a process that submits jobs."""
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    for name, value in cluster.variables().items():
        monkeypatch.setenv(name, value)


def recorded_steps(workspace: Workspace, name: str) -> list[int]:
    file = workspace.runs / name / "metrics.jsonl"
    return [row["step"] for row in workspace.metrics(name)] if file.exists() else []


def ranks_of_nodes(cluster: RayCluster) -> list[int]:
    """How many training processes each node has."""
    return [sum("ray::WorkerDict" in name_of(process) for process in node) for node in cluster.processes()]


def name_of(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def files_with(text: str, *folders: Path) -> list[Path]:
    """The files below the folders that contain the text."""
    files = [file for folder in folders for file in folder.rglob("*") if file.is_file()]
    return [file for file in files if text.encode() in file.read_bytes()]


def test_a_job_trains_on_both_nodes_outlives_its_client_and_is_attached_to_again(
    workspace: Workspace, cluster: RayCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", CANARY)
    run_dir = workspace.runs / "ray"
    process = workspace.start("train", "recipes/quickstart.yaml", "name=ray", "trainer.steps=1", *LAUNCH)
    wait_for("ranks on every node", lambda: all(ranks_of_nodes(cluster)), TRAINING_SECONDS, process)
    assert ranks_of_nodes(cluster) == [1] * NODES
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=30)

    launcher = launcher_of(run_dir)
    assert launcher.status(run_dir).state is JobState.running
    lines: list[str] = []
    summary = attach(launcher, run_dir, lines.append)

    assert (summary.status, summary.steps_done, summary.trained_episodes) == ("completed", 1, 16)
    assert recorded_steps(workspace, "ray") == [0, 1]
    assert any(line.startswith("step 1/1") for line in lines)
    assert list(launcher.logs(run_dir, follow=False)) == lines
    status = launcher.status(run_dir)
    assert (status.state, status.exit_code) == (JobState.ended, 0)
    assert not (run_dir / "rendezvous").exists()
    # Neither Ray's logs on the nodes nor the run folder hold the user's key, a token of the tools, or the cluster's.
    places = (cluster.folder, run_dir)
    assert files_with(CANARY, *places) == files_with("hf_canary", *places) == []
    assert files_with("eyJhbGciOi", *places) == []
    assert files_with(cluster.token, *places) == [cluster.folder / "token"]


@pytest.mark.slow
def test_stop_ends_everything_of_the_job_and_leaves_the_cluster(
    workspace: Workspace, cluster: RayCluster
) -> None:
    run_dir = workspace.runs / "stopped"
    before = {process for node in cluster.processes() for process in node}
    done = workspace.run(
        "train", "recipes/quickstart.yaml", "name=stopped", "trainer.steps=500", "--detach", *LAUNCH
    )
    assert done.returncode == 0, done.stderr
    launcher = launcher_of(run_dir)
    deadline = time.monotonic() + TRAINING_SECONDS
    while not all(ranks_of_nodes(cluster)):
        assert time.monotonic() < deadline, "\n".join(launcher.logs(run_dir, follow=False))
        assert launcher.status(run_dir).state is not JobState.ended
        time.sleep(0.5)
    second = workspace.run("train", "recipes/quickstart.yaml", "name=stopped", "--resume", *LAUNCH)
    assert (second.returncode, "has a job already" in second.stderr) == (2, True)
    of_job = {process for node in cluster.processes() for process in node} - before

    launcher.stop(run_dir)

    assert launcher.status(run_dir).detail == "STOPPED"
    _, alive = psutil.wait_procs(of_job, timeout=MAX_STOP_SECONDS)
    assert [name_of(process) for process in alive] == []
    assert cluster.living_nodes() == NODES
    summary = workspace.summary("stopped")
    assert (summary["status"], summary["error"]["kind"]) == ("interrupted", "interrupted")
    with pytest.raises(TrainingFailure, match="Interrupted; continue with --resume"):
        attach(launcher, run_dir, lambda _: None)
    launcher.stop(run_dir)


def test_a_run_that_the_cluster_cannot_place_ends_before_it_begins_and_says_what_is_free(
    workspace: Workspace, cluster: RayCluster
) -> None:
    done = workspace.run("train", "recipes/quickstart.yaml", "name=large", *LAUNCH, *FOUR)
    assert done.returncode == 2
    assert "The run takes 4 node(s) with 1 GPU and 3 CPU each" in done.stderr
    assert "8 CPU, 1 GPU; 8 CPU, 1 GPU" in done.stderr
    assert not (workspace.runs / "large" / "summary.json").exists()


def test_a_node_that_does_not_see_the_run_folder_ends_the_run_before_it_begins(
    workspace: Workspace, cluster: RayCluster
) -> None:
    if cluster.hidden is None:
        assert "CI" not in os.environ, "the tests need to mount a folder in a namespace"
        pytest.skip("this user may not mount anything, so every node sees every folder")
    runs = ("--runs", str(cluster.hidden))
    done = workspace.run("train", "recipes/quickstart.yaml", "name=unshared", *LAUNCH, *runs)
    assert done.returncode == 2
    assert "cannot take part in the run: it does not see the file reach-" in done.stderr
    assert f"see the run folder {cluster.hidden / 'unshared'} under the same path" in done.stderr
    assert not (cluster.hidden / "unshared" / "summary.json").exists()
    assert list((cluster.hidden / "unshared" / "launch").glob("reach-*")) == []


def test_a_wrong_token_is_refused_and_nothing_is_written(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", "0" * 64)
    done = workspace.run("train", "recipes/quickstart.yaml", "name=locked-out", *LAUNCH, "--json")
    assert (done.returncode, json.loads(done.stdout)["error"]["kind"]) == (2, "usage")
    assert "does not accept the token" in done.stderr
    assert not (workspace.runs / "locked-out").exists()


def test_a_job_that_the_cluster_does_not_know_cannot_be_stopped(cluster: RayCluster, tmp_path: Path) -> None:
    record = {
        "launcher": "ray",
        "job": "gone",
        "address": cluster.address,
        "log": "",
        "submitted": "",
    }
    (tmp_path / "launch.json").write_text(json.dumps(record))
    assert read_record(tmp_path) is not None
    assert launcher_of(tmp_path).status(tmp_path).state is JobState.unknown
    with pytest.raises((TrainingFailure, UsageError), match="gone"):
        launcher_of(tmp_path).stop(tmp_path)
