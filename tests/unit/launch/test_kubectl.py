"""How a rendered run reaches a cluster: through kubectl, for which a program stands that answers as it does."""

import json
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from aworld_train.adapter.base import RunPlan
from aworld_train.adapter.verl.framework import VerlFramework
from aworld_train.errors import DependencyMissing, TrainingFailure, UsageError
from aworld_train.launch import JobState, LaunchOptions, launcher_of, read_record
from aworld_train.launch.kubernetes import KubernetesLauncher
from aworld_train.launch.kubernetes import launcher as launching
from aworld_train.launch.log_tail import ClusterSilent
from aworld_train.recipe import read
from aworld_train.training.framework_processor import FrameworkProcessor

CANARY = "canary-77c1"
# Appends each call to `calls`, and answers with the file that is named after the command, or `list`, if there is one.
STUB = f"""#!{sys.executable}
import json, pathlib, sys
folder = pathlib.Path(__file__).parent
arguments = [a for a in sys.argv[1:] if not a.startswith("--request")]
assert arguments[0] == "--namespace", arguments
stdin = sys.stdin.read()
with (folder / "calls").open("a") as calls:
    calls.write(json.dumps([arguments[1], arguments[2:], stdin]) + "\\n")
failure = folder / "failure"
if failure.exists():
    sys.exit(failure.read_text())
kind = "list" if arguments[-1] == "name" else "-".join(arguments[2:4]).replace("/", "-")
answer = folder / kind
sys.stdout.write(answer.read_text() if answer.exists() else "")
"""


class Kubectl:
    """The stand-in, with its answers and what it was called with."""

    def __init__(self, folder: Path):
        self.folder = folder
        folder.mkdir()
        program = folder / "kubectl"
        program.write_text(STUB)
        program.chmod(program.stat().st_mode | stat.S_IXUSR)

    def answer(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def status(self, **fields: str) -> None:
        self.answer("get-rayjobs.ray.io", json.dumps({"status": fields}))

    @property
    def calls(self) -> list[tuple[str, list[str], str]]:
        file = self.folder / "calls"
        return [tuple(json.loads(line)) for line in file.read_text().splitlines()] if file.exists() else []


@pytest.fixture
def kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kubectl:
    stub = Kubectl(tmp_path / "bin")
    monkeypatch.setenv("PATH", str(stub.folder), prepend=":")
    monkeypatch.setenv("HF_TOKEN", CANARY)
    return stub


def processor(tmp_path: Path, runs: str = "runs", **keys: Any) -> FrameworkProcessor:
    """A processor whose recipe counts as checked."""
    tree = {
        "name": "long",
        "cluster": {
            "launcher": "kubernetes",
            "kubernetes": {"image": "train:1", "claim": "shared", "namespace": "lab", "env_image": "tools:1"},
        },
        "env": {"docker_dir": "calculator-mcp-server"},
    }
    made = FrameworkProcessor(runs)
    made.loaded = read(tree, [])
    made._framework, made._plan = VerlFramework(), RunPlan({}, "", [], lambda _: {})
    return made


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_without_submit_the_run_is_rendered_and_nothing_is_called(
    tmp_path: Path, kubectl: Kubectl, capsys: pytest.CaptureFixture[str]
) -> None:
    assert KubernetesLauncher().launch(processor(tmp_path), LaunchOptions()) is None
    file = tmp_path / "runs" / "long" / "launch" / "kubernetes.yaml"
    assert "kind: RayJob" in file.read_text()
    assert "&id" not in file.read_text()
    shown = capsys.readouterr().err
    assert f"apply -f {file}" in shown
    assert "aworld_train.launch.kubernetes.plan" in shown
    assert kubectl.calls == []
    assert read_record(tmp_path / "runs" / "long") is None
    assert CANARY not in "".join(path.read_text() for path in tmp_path.rglob("runs/**/*") if path.is_file())


def test_submit_sends_the_secrets_through_a_pipe_and_then_the_file(tmp_path: Path, kubectl: Kubectl) -> None:
    options = LaunchOptions(submit=True, detach=True)
    assert KubernetesLauncher().launch(processor(tmp_path), options) is None
    assert {namespace for namespace, *_ in kubectl.calls} == {"lab"}
    verbs = [arguments[0] for _, arguments, _ in kubectl.calls]
    assert verbs == ["get", "delete", "get", "apply", "apply"]
    *_, (_, secrets_arguments, secrets), (_, file_arguments, nothing) = kubectl.calls
    assert secrets_arguments == ["apply", "-f", "-"]
    assert [item["metadata"]["name"] for item in json.loads(secrets)["items"]] == ["long-env", "long-tools"]
    assert json.loads(secrets)["items"][0]["stringData"]["HF_TOKEN"] == CANARY
    assert file_arguments == ["apply", "-f", str(tmp_path / "runs/long/launch/kubernetes.yaml")]
    assert nothing == ""
    assert not any(CANARY in argument for _, arguments, _ in kubectl.calls for argument in arguments)
    record = read_record(tmp_path / "runs" / "long")
    assert record is not None
    assert (record.launcher, record.job, record.address) == ("kubernetes", "long", "lab")
    assert CANARY not in "".join(path.read_text() for path in tmp_path.rglob("runs/**/*") if path.is_file())


def test_a_run_whose_job_is_running_is_not_submitted_again(tmp_path: Path, kubectl: Kubectl) -> None:
    kubectl.status(jobStatus="RUNNING", jobDeploymentStatus="Running")
    with pytest.raises(UsageError, match="is RUNNING already"):
        KubernetesLauncher().launch(processor(tmp_path), LaunchOptions(submit=True))
    assert [arguments[0] for _, arguments, _ in kubectl.calls] == ["get"]


@pytest.mark.parametrize(
    ("fields", "state", "exit_code"),
    [
        ({}, JobState.waiting, None),
        ({"jobDeploymentStatus": "Initializing"}, JobState.waiting, None),
        ({"jobStatus": "PENDING", "jobDeploymentStatus": "Running"}, JobState.waiting, None),
        ({"jobStatus": "RUNNING", "jobDeploymentStatus": "Running"}, JobState.running, None),
        ({"jobStatus": "SUCCEEDED", "jobDeploymentStatus": "Complete"}, JobState.ended, 0),
        ({"jobStatus": "FAILED", "jobDeploymentStatus": "Failed"}, JobState.ended, 1),
        ({"jobStatus": "", "jobDeploymentStatus": "Failed"}, JobState.ended, 1),
    ],
)
def test_the_state_of_a_rayjob(
    tmp_path: Path, kubectl: Kubectl, fields: dict[str, str], state: JobState, exit_code: int | None
) -> None:
    run_dir = submitted(tmp_path, kubectl)
    kubectl.status(**fields)
    status = launcher_of(run_dir).status(run_dir)
    assert (status.state, status.exit_code) == (state, exit_code)


def test_logs_are_the_submitters_until_the_job_ends(
    tmp_path: Path, kubectl: Kubectl, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_dir = submitted(tmp_path, kubectl)
    kubectl.status(jobStatus="SUCCEEDED")
    kubectl.answer("logs-job-long", "step 1/2\nstep 2/2\nwithout a line's end")
    launcher = launcher_of(run_dir)
    expected = ["step 1/2", "step 2/2", "without a line's end"]
    assert list(launcher.logs(run_dir, follow=True)) == expected
    assert list(launcher.logs(run_dir, follow=False)) == expected


def test_stop_deletes_everything_of_the_run_and_waits_for_it(
    tmp_path: Path, kubectl: Kubectl, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_dir = submitted(tmp_path, kubectl)
    launcher_of(run_dir).stop(run_dir)
    _, arguments, _ = kubectl.calls[-2]
    assert arguments[:2] == ["delete", launching._KINDS]
    assert "aworld-train/run=long" in arguments
    monkeypatch.setattr(launching, "_MAX_STOP_SECONDS", 0.0)
    kubectl.answer("list", "rayjob.ray.io/long\n")
    with pytest.raises(TrainingFailure, match="still there"):
        launcher_of(run_dir).stop(run_dir)


def test_what_kubectl_says_is_the_error(
    tmp_path: Path, kubectl: Kubectl, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit = LaunchOptions(submit=True)
    kubectl.answer("failure", 'error: the server doesn\'t have a resource type "rayjobs"')
    with pytest.raises(TrainingFailure, match=r'kubectl get failed: .*resource type "rayjobs"'):
        KubernetesLauncher().launch(processor(tmp_path), submit)
    kubectl.answer("failure", "Unable to connect to the server: dial tcp: no route to host")
    with pytest.raises(ClusterSilent, match="No Kubernetes cluster answers kubectl"):
        KubernetesLauncher().launch(processor(tmp_path), submit)
    assert read_record(tmp_path / "runs" / "long") is None
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(DependencyMissing, match="kubectl is not on the PATH"):
        KubernetesLauncher().launch(processor(tmp_path), submit)


def test_runs_that_pods_cannot_see_are_refused(tmp_path: Path, kubectl: Kubectl) -> None:
    with pytest.raises(UsageError, match=r"--runs is /elsewhere/runs, and pods see the claim at /shared"):
        KubernetesLauncher().launch(processor(tmp_path, runs="/elsewhere/runs"), LaunchOptions())


def test_an_attached_run_whose_folder_is_on_the_claim_alone_ends_with_its_tools_removed(
    tmp_path: Path, kubectl: Kubectl, capsys: pytest.CaptureFixture[str]
) -> None:
    kubectl.answer("logs-job-long", "step 2/2\n")
    kubectl.status(jobStatus="SUCCEEDED")
    assert KubernetesLauncher().launch(processor(tmp_path), LaunchOptions(submit=True)) is None
    assert "summary.json on the claim, below /shared/runs/long" in capsys.readouterr().err
    _, arguments, _ = kubectl.calls[-1]
    assert arguments[0] == "delete"
    assert "aworld-train/run=long,aworld-train/role=tools" in arguments
    kubectl.status(jobStatus="FAILED")
    kubectl.answer("logs-job-long", "error: The recipe is wrong.\n")
    with pytest.raises(TrainingFailure, match="The recipe is wrong"):
        KubernetesLauncher().launch(processor(tmp_path), LaunchOptions(submit=True))


def submitted(tmp_path: Path, kubectl: Kubectl) -> Path:
    KubernetesLauncher().launch(processor(tmp_path), LaunchOptions(submit=True, detach=True))
    return tmp_path / "runs" / "long"
