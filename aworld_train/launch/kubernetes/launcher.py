"""Renders a run for Kubernetes into its run folder and, with ``--submit``, hands it to the cluster of ``kubectl``."""

import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import yaml

from aworld_train.adapter.episodes.files import write_files
from aworld_train.errors import DependencyMissing, TrainingFailure, UsageError
from aworld_train.launch.attach import attach
from aworld_train.launch.base import DryRun, JobState, JobStatus, LaunchOptions
from aworld_train.launch.cluster_job import INSIDE_VARIABLE
from aworld_train.launch.job import job_recipe
from aworld_train.launch.kubernetes import plan
from aworld_train.launch.kubernetes.naming import ROLE_LABEL, RUN_LABEL
from aworld_train.launch.log_tail import ClusterSilent, follow_log, show_line
from aworld_train.launch.record import LaunchRecord, submitted_record, write_record
from aworld_train.training.framework_processor import FrameworkProcessor
from aworld_train.training.placement import Placement
from aworld_train.training.run_files import LAUNCH_FOLDER
from aworld_train.training.summary import RunSummary

FILE = f"{LAUNCH_FOLDER}/kubernetes.yaml"
_KINDS = "rayjobs.ray.io,deployments,services,networkpolicies,configmaps,secrets"
_MAX_STOP_SECONDS = 90.0
_ENDED = ("SUCCEEDED", "FAILED", "STOPPED")
_KUBECTL_SECONDS = 120.0
_REQUEST = "--request-timeout=30s"
_NO_CLUSTER = ("Unable to connect", "was refused", "no such host", "no configuration has been provided")


class KubernetesLauncher:
    name = "kubernetes"

    def launch(self, processor: FrameworkProcessor, options: LaunchOptions) -> RunSummary | None:
        if address := os.environ.get(INSIDE_VARIABLE):
            placement = Placement(address=address)
            processor.train(resume=options.resume, quiet=options.quiet, placement=placement)
            return None  # the command that follows the job shows the summary
        run_dir = processor.run_dir(processor.checked.recipe).resolve()
        if not options.resume:  # what there is to resume may be on the claim alone; the job looks
            processor.check_run_folder(run_dir)
        files, rendered = _render(processor, resume=options.resume)
        write_files(run_dir, files)
        file = run_dir / FILE
        if not options.submit:
            show_line(f"Rendered {file}. It holds no secret; submit it with --submit, or by hand:")
            for line in _commands(run_dir, file, rendered.names.namespace):
                show_line(f"  {line}")
            return None
        self._submit(rendered, run_dir, file)
        show_line(f"The RayJob {rendered.names.run} was submitted; it runs without this command.")
        return None if options.detach else self._follow(rendered, run_dir, quiet=options.quiet)

    def dry_run(self, processor: FrameworkProcessor, folder: Path) -> DryRun:
        files, rendered = _render(processor, resume=False)
        file = folder.resolve() / FILE
        command = ["kubectl", "--namespace", rendered.names.namespace, "apply", "-f", str(file)]
        return DryRun({**processor.plan_in(folder).files, **files}, FILE, command)

    def status(self, run_dir: Path) -> JobStatus:
        record = submitted_record(run_dir)
        try:
            return _status(record.job, record.address)
        except ClusterSilent as error:
            return JobStatus(JobState.unknown, error.message)

    def stop(self, run_dir: Path) -> None:
        """Every object of the run is deleted, its tool environment and Secrets included."""
        record = submitted_record(run_dir)
        _delete(record.job, record.address)

    def logs(self, run_dir: Path, *, follow: bool) -> Iterator[str]:
        """What KubeRay's submitter prints, which is the job's own output."""
        record = submitted_record(run_dir)

        def read() -> str:
            try:
                return kubectl("logs", f"job/{record.job}", namespace=record.address)
            except TrainingFailure:
                return ""  # the submitter's pod does not run yet, or does not any more

        def has_ended() -> bool:
            return _status(record.job, record.address).state in (JobState.ended, JobState.unknown)

        return follow_log(read, has_ended, follow=follow)

    def _follow(self, rendered: plan.KubernetesPlan, run_dir: Path, *, quiet: bool) -> RunSummary | None:
        """Follow the job to its end, then remove the tool environment, which KubeRay does not know."""
        try:
            return attach(self, run_dir, (lambda _: None) if quiet else show_line)
        except TrainingFailure:
            if self.status(run_dir).exit_code != 0:
                raise
            # This machine does not see the claim.
            show_line(f"The run is complete; see summary.json on the claim, below {rendered.run_dir}.")
            return None
        finally:
            if self.status(run_dir).state is JobState.ended:
                _delete_objects(f"{_of_run(rendered.names.run)},{ROLE_LABEL}=tools", rendered.names.namespace)

    def _submit(self, rendered: plan.KubernetesPlan, run_dir: Path, file: Path) -> None:
        names = rendered.names
        # Fails where no cluster answers, it has no KubeRay, or the user may not see its jobs.
        status = _status(names.run, names.namespace)
        if status.state in (JobState.waiting, JobState.running):
            raise UsageError(
                f"The RayJob {names.run} is {status.detail} already; follow it with `aworld-train runs attach`, end it "
                "with `aworld-train runs stop`, or give this run another name."
            )
        _delete(names.run, names.namespace)
        write_record(run_dir, LaunchRecord(self.name, names.run, names.namespace))
        secrets = json.dumps({"apiVersion": "v1", "kind": "List", "items": rendered.secrets()})
        kubectl("apply", "-f", "-", namespace=names.namespace, content=secrets)
        kubectl("apply", "-f", str(file), namespace=names.namespace)


def _render(processor: FrameworkProcessor, *, resume: bool) -> tuple[dict[str, str], plan.KubernetesPlan]:
    loaded = processor.checked
    folder = PurePosixPath(loaded.recipe.cluster.kubernetes.folder)
    runs = PurePosixPath(processor.run_path)
    if runs.is_absolute() and not runs.is_relative_to(folder):
        raise UsageError(
            f"--runs is {runs}, and pods see the claim at {folder} (cluster.kubernetes.folder). Give a relative path, "
            f"which counts from there, or one below {folder}."
        )
    rendered = plan.KubernetesPlan(loaded, folder / runs / loaded.recipe.name, resume)
    # Copied, so that what occurs twice is written out twice, because the file is for people too.
    manifests = json.loads(json.dumps(rendered.manifests()))
    text = yaml.safe_dump_all(manifests, sort_keys=False, width=110)
    return {FILE: text, **job_recipe(loaded)}, rendered


def _commands(run_dir: Path, file: Path, namespace: str) -> list[str]:
    kubectl_command = f"kubectl --namespace {shlex.quote(namespace)} apply -f"
    make_secrets = shlex.join([sys.executable, "-P", "-m", plan.__name__, str(run_dir)])
    return [f"{make_secrets} | {kubectl_command} -", f"{kubectl_command} {shlex.quote(str(file))}"]


def _status(job: str, namespace: str) -> JobStatus:
    text = kubectl("get", "rayjobs.ray.io", job, "--ignore-not-found", "-o", "json", namespace=namespace)
    if not text.strip():
        return JobStatus(JobState.unknown, "not known to the cluster")
    status = json.loads(text).get("status", {})
    job_status, deployment = status.get("jobStatus", ""), status.get("jobDeploymentStatus", "")
    if job_status in _ENDED or deployment in ("Complete", "Failed"):
        exit_code = 0 if job_status == "SUCCEEDED" else 1
        return JobStatus(JobState.ended, job_status or deployment, exit_code)
    state = JobState.running if job_status == "RUNNING" else JobState.waiting
    return JobStatus(state, job_status or deployment or "PENDING")


def _delete(run: str, namespace: str) -> None:
    _delete_objects(_of_run(run), namespace)
    remaining = ("get", f"{_KINDS},pods", "--selector", _of_run(run), "-o", "name")
    deadline = time.monotonic() + _MAX_STOP_SECONDS
    while kubectl(*remaining, namespace=namespace).strip():
        if time.monotonic() > deadline:
            raise TrainingFailure(
                f"Objects of the run {run} are still there {_MAX_STOP_SECONDS:.0f} s after they were deleted; see "
                f"`kubectl --namespace {namespace} get all --selector {_of_run(run)}`."
            )
        time.sleep(1.0)


def _delete_objects(selector: str, namespace: str) -> None:
    arguments = ("delete", _KINDS, "--selector", selector, "--ignore-not-found", "--wait=false")
    kubectl(*arguments, namespace=namespace)


def _of_run(run: str) -> str:
    return f"{RUN_LABEL}={run}"


def kubectl(*arguments: str, namespace: str, content: str | None = None) -> str:
    """Run one command to its end; returns what it printed. ClusterSilent if no cluster answers."""
    program = shutil.which("kubectl")
    if program is None:
        raise DependencyMissing(
            "kubectl is not on the PATH, so nothing can be submitted. Install it, or copy the rendered file to a "
            "machine that has it."
        )
    command = [program, "--namespace", namespace, _REQUEST, *arguments]
    try:
        done = subprocess.run(
            command, input=content or "", capture_output=True, text=True, timeout=_KUBECTL_SECONDS
        )
    except subprocess.TimeoutExpired as error:
        raise ClusterSilent(
            f"kubectl {arguments[0]} has not ended within {_KUBECTL_SECONDS:.0f} s."
        ) from error
    if done.returncode == 0:
        return done.stdout
    lines = done.stderr.strip().splitlines() or ["no message"]
    if any(text in done.stderr for text in _NO_CLUSTER):
        raise ClusterSilent(f"No Kubernetes cluster answers kubectl: {lines[-1]}")
    raise TrainingFailure(f"kubectl {arguments[0]} failed: {lines[-1]}")
