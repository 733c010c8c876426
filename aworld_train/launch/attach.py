"""Follows a submitted job to its end: shows its log and returns its run's summary, or raises its run's error."""

from collections.abc import Callable
from pathlib import Path

from aworld_train import errors
from aworld_train.errors import AworldTrainError, TrainingFailure, UsageError
from aworld_train.launch.base import JobState, JobStatus, Launcher
from aworld_train.launch.record import record_file
from aworld_train.training.run_files import SUMMARY
from aworld_train.training.summary import RunSummary, read_summary

_ERROR = "error: "


def attach(launcher: Launcher, run_dir: Path, show: Callable[[str], None]) -> RunSummary:
    """Show the log of the job in a run folder until it ends; an error has the kind and exit code of the run's."""
    last: str | None = None
    for line in launcher.logs(run_dir, follow=True):
        if last is not None:
            show(last)
        last = line
    try:
        # An error that ends the job's command is the last line of its log.
        logged = last.removeprefix(_ERROR) if last is not None and last.startswith(_ERROR) else ""
        summary = outcome(run_dir, launcher.status(run_dir), logged)
    except AworldTrainError as error:
        # The command that attaches shows the error too.
        if last is not None and last != f"{_ERROR}{error.message}":
            show(last)
        raise
    if last is not None:
        show(last)
    return summary


def outcome(run_dir: Path, status: JobStatus, logged_error: str = "") -> RunSummary:
    """The summary of a run whose job has ended; raises as ``attach``. ``logged_error`` ends its log, if any."""
    summary = read_summary(run_dir) if _is_of_job(run_dir) else None
    if summary is None and logged_error:
        raise (UsageError if status.exit_code == UsageError.exit_code else TrainingFailure)(logged_error)
    if summary is None:
        raise TrainingFailure(
            f"The job of {run_dir} ended as {status.detail} before its run began"
            + (f" (exit code {status.exit_code})" if status.exit_code is not None else "")
            + ". Its log says why."
        )
    if summary.status == "completed":
        return summary
    if summary.error is None:  # the job was killed, or this machine cannot reach the scheduler
        ended = "cannot be asked about" if status.state is JobState.unknown else f"ended as {status.detail}"
        raise TrainingFailure(
            f"The job of {run_dir} {ended} after step {summary.steps_done} of {summary.steps_planned}; its run did "
            "not end on its own. Continue with --resume."
        )
    raise _error(summary.error["kind"])(summary.error["message"])


def _is_of_job(run_dir: Path) -> bool:
    """Whether ``summary.json`` was written after the launch; that of an earlier launch says nothing about the job."""
    if not record_file(run_dir).exists():  # a run without a scheduler
        return True
    try:
        return (run_dir / SUMMARY).stat().st_mtime >= record_file(run_dir).stat().st_mtime
    except OSError:
        return False


def _error(kind: str) -> type[AworldTrainError]:
    classes = [value for value in vars(errors).values() if isinstance(value, type)]
    known = {cls.kind: cls for cls in classes if issubclass(cls, AworldTrainError)}
    return known.get(kind, TrainingFailure)
