"""Submits a run to SLURM, follows its job, and runs it inside the job, or inside any allocation of the user's."""

import os
import shlex
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from string import Template

from aworld_train.adapter.episodes.files import write_files
from aworld_train.errors import Preempted, TrainingFailure, UsageError
from aworld_train.launch.attach import attach
from aworld_train.launch.base import DryRun, JobState, JobStatus, LaunchOptions, refuse_second_job
from aworld_train.launch.job import RECIPE, job_command, job_recipe
from aworld_train.launch.log_tail import show_line
from aworld_train.launch.record import LaunchRecord, launch_folder, submitted_record, write_record
from aworld_train.launch.slurm import scheduler
from aworld_train.launch.slurm.allocation import Allocation, current_allocation, nodes_for_run
from aworld_train.launch.slurm_variables import inside_allocation, unused_resources
from aworld_train.recipe import LoadedRecipe
from aworld_train.recipe.device import on_cpu
from aworld_train.recipe.schema import Recipe
from aworld_train.training.framework_processor import FrameworkProcessor
from aworld_train.training.placement import Placement
from aworld_train.training.run_files import LAUNCH_FOLDER, has_run
from aworld_train.training.summary import RunSummary, read_summary

_MAX_STOP_SECONDS = 120.0
_MAX_SILENT_SECONDS = 600.0
_POLL_SECONDS = 2.0
_NEVER = ("PartitionConfig", "PartitionNodeLimit", "PartitionTimeLimit", "BadConstraints")
"""Reasons of SLURM's that go away only if the job or the partition is changed (``man squeue``, JOB REASON CODES)."""
_STOP_SHARE = 0.8  # of the time before the limit: the rest is for ending and requeueing

LOG = "job-%j.log"
"""The job's log below the folder of the launch; SLURM replaces ``%j`` by the job's number."""
_TEMPLATE = "job.sbatch"
SCRIPT = f"{LAUNCH_FOLDER}/{_TEMPLATE}"


class SlurmLauncher:
    name = "slurm"

    def launch(self, processor: FrameworkProcessor, options: LaunchOptions) -> RunSummary | None:
        """Inside an allocation the recipe runs there, and nothing is submitted."""
        if inside_allocation():
            return _run_inside(processor, options, current_allocation())
        run_dir = processor.run_dir(processor.checked.recipe).resolve()
        refuse_second_job(self, run_dir)
        processor.check_run_folder(run_dir, resume=options.resume)
        write_files(run_dir, job_files(processor.checked, run_dir, run_dir.parent, resume=options.resume))
        job = scheduler.submit(run_dir / SCRIPT)
        log = f"{LAUNCH_FOLDER}/{LOG.replace('%j', job)}"
        write_record(run_dir, LaunchRecord(self.name, job, os.environ.get("SLURM_CLUSTER_NAME", ""), log))
        show_line(f"Submitted as SLURM job {job}. Its log is {run_dir / log}.")
        if options.detach:
            if reason := waiting_note(job, scheduler.status(job)):
                show_line(reason)
            return None
        try:
            return attach(self, run_dir, (lambda _: None) if options.quiet else show_line)
        except KeyboardInterrupt:
            show_line(f"The job keeps running; `scancel {job}` ends it.")
            raise

    def dry_run(self, processor: FrameworkProcessor, folder: Path) -> DryRun:
        files = job_files(processor.checked, folder, Path(processor.run_path), resume=False)
        return DryRun(files, SCRIPT, ["sbatch", "--export=ALL", str(folder.resolve() / SCRIPT)])

    def status(self, run_dir: Path) -> JobStatus:
        return scheduler.status(submitted_record(run_dir).job)

    def stop(self, run_dir: Path) -> None:
        job = submitted_record(run_dir).job
        scheduler.cancel(job)
        deadline = time.monotonic() + _MAX_STOP_SECONDS
        while (status := scheduler.status(job)).state in (JobState.waiting, JobState.running):
            if time.monotonic() > deadline:
                raise TrainingFailure(
                    f"The SLURM job {job} is still {status.detail} {_MAX_STOP_SECONDS:.0f} seconds after scancel."
                )
            time.sleep(_POLL_SECONDS)

    def logs(self, run_dir: Path, *, follow: bool) -> Iterator[str]:
        record = submitted_record(run_dir)
        if not record.log:
            raise UsageError(
                f"The SLURM job {record.job} was not submitted by `aworld-train`: its log is where its sbatch put it."
            )
        return _lines(run_dir / record.log, record.job, follow=follow)


def _run_inside(
    processor: FrameworkProcessor, options: LaunchOptions, allocation: Allocation
) -> RunSummary | None:
    """The summary; None if the job was requeued, or if the command that submitted it shows the summary."""
    recipe = processor.checked.recipe
    run_dir = processor.run_dir(recipe).resolve()
    resume = options.resume or (allocation.restarts > 0 and has_run(run_dir))
    processor.check_run_folder(run_dir, resume=resume)
    submitted = scheduler.SUBMITTED in os.environ
    if not submitted:
        write_record(run_dir, LaunchRecord("slurm", allocation.job, os.environ.get("SLURM_CLUSTER_NAME", "")))
    with _shared_folder(run_dir, allocation.job) as shared:
        placement = Placement(
            nodes_for_run(allocation, recipe.cluster.nodes, shared),
            recipe.cluster.slurm.save_before * _STOP_SHARE,
            unused_resources(recipe),
        )
        checkpoint = _checkpoint(run_dir) if resume else None
        try:
            summary = processor.train(resume=resume, quiet=options.quiet, placement=placement)
            return None if submitted else summary
        except Preempted as error:
            message = error.message
    if _checkpoint(run_dir) == checkpoint:
        raise _no_further(run_dir, message)
    show_line(f"{message} The job is requeued, and does that.")
    scheduler.requeue(allocation.job)
    return None


def _no_further(run_dir: Path, message: str) -> TrainingFailure:
    failure = TrainingFailure(
        f"{message} The job is not requeued, because it would get no further: one step, with the start, takes longer "
        "than the job's time limit allows (cluster.slurm.time)."
    )
    if summary := read_summary(run_dir):
        summary.status = "failed"
        summary.error = {"kind": failure.kind, "message": failure.message}
        summary.write(run_dir)
    return failure


@contextmanager
def _shared_folder(run_dir: Path, job: str) -> Iterator[Path]:
    folder = launch_folder(run_dir) / f"job-{job}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _checkpoint(run_dir: Path) -> str | None:
    summary = read_summary(run_dir)
    return summary.checkpoint if summary else None


def _lines(log: Path, job: str, *, follow: bool) -> Iterator[str]:
    position = 0
    rest = b""
    next_poll = 0.0
    poll = _Poll(job)
    reason = ""
    ended = not follow
    while True:
        if log.exists():
            with log.open("rb") as stream:
                stream.seek(position)
                content = stream.read()
            position += len(content)
            *lines, rest = (rest + content).split(b"\n")
            yield from (line.decode(errors="replace") for line in lines)
        if ended:
            if rest:
                yield rest.decode(errors="replace")
            return
        time.sleep(0.5)
        if time.monotonic() > next_poll:
            next_poll = time.monotonic() + _POLL_SECONDS
            ended = poll.ended()
            if poll.reason != reason and (reason := poll.reason):
                yield reason


def waiting_note(job: str, status: JobStatus) -> str:
    if status.state is not JobState.waiting or "(" not in status.detail:
        return ""
    advice = f"`scancel {job}` ends it"
    if any(f"({reason})" in status.detail for reason in _NEVER):
        advice = f"it does not start as it is: end it with `scancel {job}`, and ask for less (cluster.nodes, "
        advice += "cluster.slurm)"
    return f"The SLURM job {job} is {status.detail}; {advice}."


class _Poll:
    """Asks SLURM about a job, also after a while without answers; ``reason`` says why the job does not run yet."""

    def __init__(self, job: str):
        self._job = job
        self.reason = ""
        self._answered = time.monotonic()

    def ended(self) -> bool:
        try:
            status = scheduler.status(self._job)
        except TrainingFailure as error:
            if time.monotonic() - self._answered > _MAX_SILENT_SECONDS:
                raise TrainingFailure(f"{error.message} The job {self._job} may still run.") from error
            return False
        self._answered = time.monotonic()
        self.reason = waiting_note(self._job, status)
        return status.state in (JobState.ended, JobState.unknown)


class _Template(Template):
    """A template whose placeholders are no shell variables."""

    delimiter = "@"


def job_files(loaded: LoadedRecipe, folder: Path, runs: Path, *, resume: bool) -> dict[str, str]:
    template = _Template((files("aworld_train.launch.slurm") / _TEMPLATE).read_text())
    options = sbatch_options(loaded.recipe, folder.resolve() / LAUNCH_FOLDER)
    script = template.substitute(
        name=loaded.recipe.name,
        options="\n".join(f"#SBATCH {option}" for option in options),
        setup="\n".join(loaded.recipe.cluster.slurm.setup),
        command=shlex.join(job_command(folder.resolve() / RECIPE, runs, "slurm", resume=resume)),
    )
    return {SCRIPT: script, **job_recipe(loaded)}


def sbatch_options(recipe: Recipe, folder: Path) -> list[str]:
    """The options of sbatch for a recipe; the recipe's own come last, and so take precedence."""
    cluster, section = recipe.cluster, recipe.cluster.slurm
    on_gpus = not on_cpu(recipe)
    cores = section.cpus_per_node
    options = {
        "job-name": f"aworld-{recipe.name}",
        "nodes": cluster.nodes,
        "ntasks-per-node": 1,
        "cpus-per-task": cores,
        "gres": f"gpu:{cluster.gpus_per_node}" if on_gpus else None,
        "partition": section.partition,
        "account": section.account,
        "time": section.time,
        "signal": f"B:USR1@{section.save_before}",
        # A percent sign of the path is doubled, because SLURM takes one for a placeholder.
        "output": f"{str(folder).replace('%', '%%')}/{LOG}",
        "open-mode": "append",
    }
    return [
        *(f"--{name}={shlex.quote(str(value))}" for name, value in options.items() if value is not None),
        *(("--exclusive",) if cores is None else ()),
        "--requeue",
        *section.options,
    ]
