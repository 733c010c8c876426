"""The launcher ``ray``: the run is a job of a Ray cluster that is there already.

The job belongs to the cluster, so it keeps running when the command that submitted it ends. ``cluster_job``
starts it.
"""

import os
import shlex
import time
from collections.abc import Iterator
from pathlib import Path

from aworld_train.adapter.episodes.files import write_files
from aworld_train.encrypted_env import ray_token, seal
from aworld_train.errors import TrainingFailure
from aworld_train.launch.attach import attach
from aworld_train.launch.base import DryRun, JobState, JobStatus, LaunchOptions, refuse_second_job
from aworld_train.launch.cluster_job import FILE, INSIDE_VARIABLE, SEALED_VARIABLE, ClusterJob
from aworld_train.launch.job import RECIPE, job_command, job_recipe, job_variables
from aworld_train.launch.log_tail import ClusterSilent, follow_log, show_line
from aworld_train.launch.ray_api import DEFAULT_ADDRESS, RayJobs, checked_address
from aworld_train.launch.record import LaunchRecord, submitted_record, write_record
from aworld_train.recipe.schema import Recipe
from aworld_train.training.framework_processor import FrameworkProcessor
from aworld_train.training.placement import Placement
from aworld_train.training.run_files import LAUNCH_FOLDER
from aworld_train.training.summary import RunSummary

_FILE = f"{LAUNCH_FOLDER}/{FILE}"
_STOP_GRACE = 15
"""Seconds that a job has to end on its own; Ray then kills its processes. Ray's own limit is 3."""
_STOP_SECONDS = _STOP_GRACE + 15.0
_STOP_POLL_SECONDS = 0.25


class RayLauncher:
    name = "ray"

    def launch(self, processor: FrameworkProcessor, options: LaunchOptions) -> RunSummary | None:
        if address := os.environ.get(INSIDE_VARIABLE):
            placement = Placement(address=address)
            processor.train(resume=options.resume, quiet=options.quiet, placement=placement)
            return None  # the command that follows the job shows the summary
        recipe = processor.checked.recipe
        run_dir = processor.run_dir(recipe).resolve()
        jobs = _cluster(recipe)
        jobs.check()
        refuse_second_job(self, run_dir)
        processor.check_run_folder(run_dir, resume=options.resume)
        record = self._submit(processor, jobs, run_dir, options)
        show = (lambda _: None) if options.quiet else show_line
        show(
            f"The job {record.job} was submitted to {record.address}. It runs without this command; its log: "
            f"aworld-train runs logs {run_dir}"
        )
        return None if options.detach else attach(self, run_dir, show)

    def dry_run(self, processor: FrameworkProcessor, folder: Path) -> DryRun:
        plan = processor.plan_in(folder)
        job, files = _prepare(processor, folder, resume=False)
        return DryRun({**plan.files, **files}, plan.config, job.command(folder.resolve() / _FILE))

    def status(self, run_dir: Path) -> JobStatus:
        record = submitted_record(run_dir)
        try:
            return RayJobs(record.address, ray_token()).status(record.job)
        except ClusterSilent as error:
            return JobStatus(JobState.unknown, error.message)

    def stop(self, run_dir: Path) -> None:
        record = submitted_record(run_dir)
        jobs = RayJobs(record.address, ray_token())
        if jobs.status(record.job).state is not JobState.ended:
            jobs.stop(record.job)
        deadline = time.monotonic() + _STOP_SECONDS
        while (status := jobs.status(record.job)).state is not JobState.ended:
            if status.state is JobState.unknown:
                raise TrainingFailure(f"The job {record.job} of {run_dir} is {status.detail}.")
            if time.monotonic() > deadline:
                raise TrainingFailure(
                    f"The job {record.job} at {record.address} has not ended {_STOP_SECONDS:.0f} s after it was asked "
                    f"to ({status.detail}). Look at it on the cluster's dashboard."
                )
            time.sleep(_STOP_POLL_SECONDS)

    def logs(self, run_dir: Path, *, follow: bool) -> Iterator[str]:
        record = submitted_record(run_dir)
        jobs = RayJobs(record.address, ray_token())

        def has_ended() -> bool:
            return jobs.status(record.job).state in (JobState.ended, JobState.unknown)

        return follow_log(lambda: jobs.log(record.job), has_ended, follow=follow)

    def _submit(
        self, processor: FrameworkProcessor, jobs: RayJobs, run_dir: Path, options: LaunchOptions
    ) -> LaunchRecord:
        token = ray_token()
        assert token is not None, "a cluster that asks for no token is refused"
        job, files = _prepare(processor, run_dir, resume=options.resume)
        write_files(run_dir, files)
        record = LaunchRecord(self.name, f"aworld-train-{job.nonce}", jobs.address)
        # Before the job exists, so that it can be found whenever this process is killed.
        write_record(run_dir, record)
        jobs.submit(
            record.job,
            shlex.join(job.command(run_dir / _FILE)),
            variables={
                SEALED_VARIABLE: seal(job_variables(processor.checked), token),
                "RAY_JOB_STOP_WAIT_TIME_S": str(_STOP_GRACE),
            },
            metadata={"run": processor.checked.recipe.name, "folder": str(run_dir)},
        )
        return record


def _cluster(recipe: Recipe) -> RayJobs:
    address = recipe.cluster.address or os.environ.get("RAY_ADDRESS") or DEFAULT_ADDRESS
    return RayJobs(checked_address(address), ray_token())


def _prepare(
    processor: FrameworkProcessor, folder: Path, *, resume: bool
) -> tuple[ClusterJob, dict[str, str]]:
    """The job, and the files that it reads in ``folder``, as texts by name."""
    recipe = processor.checked.recipe
    run_dir = processor.run_dir(recipe).resolve()
    command = job_command(folder.resolve() / RECIPE, run_dir.parent, "ray", resume=resume)
    job = ClusterJob.of(recipe, run_dir, str(Path.cwd()), command)
    return job, {_FILE: job.to_json(), **job_recipe(processor.checked)}
