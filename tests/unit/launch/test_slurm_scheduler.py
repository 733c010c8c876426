"""SLURM's answers, and its silence, as the launcher understands them."""

from pathlib import Path

import pytest

from aworld_train.errors import DependencyMissing, TrainingFailure
from aworld_train.launch.base import JobState, JobStatus
from aworld_train.launch.slurm import launcher, scheduler


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder with the only commands that are found."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def install(programs: Path, name: str, body: str) -> None:
    (programs / name).write_text(f"#!/bin/sh\n{body}\n")
    (programs / name).chmod(0o700)


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("JobState=PENDING Reason=Priority ExitCode=0:0", JobStatus(JobState.waiting, "PENDING (Priority)")),
        ("JobState=RUNNING Reason=None ExitCode=0:0", JobStatus(JobState.running, "RUNNING")),
        ("JobState=COMPLETING Reason=None ExitCode=0:0", JobStatus(JobState.running, "COMPLETING")),
        ("JobState=COMPLETED Reason=None ExitCode=0:0", JobStatus(JobState.ended, "COMPLETED", 0)),
        (
            "JobState=FAILED Reason=OutOfMemory ExitCode=2:0",
            JobStatus(JobState.ended, "FAILED (OutOfMemory)", 2),
        ),
        (
            "JobState=TIMEOUT Reason=TimeLimit ExitCode=0:15",
            JobStatus(JobState.ended, "TIMEOUT (TimeLimit)", 143),
        ),
        ("JobState=A_NEW_ONE Reason=None ExitCode=?", JobStatus(JobState.ended, "A_NEW_ONE", None)),
    ],
)
def test_states_and_exit_codes(programs: Path, line: str, status: JobStatus) -> None:
    install(programs, "scontrol", f"echo 'JobId=1 JobName=a {line}'")
    assert scheduler.status("1") == status


@pytest.mark.parametrize(
    ("state", "reason", "sentence"),
    [
        (JobState.waiting, " (Priority)", "The SLURM job 7 is PENDING (Priority); `scancel 7` ends it."),
        (
            JobState.waiting,
            " (PartitionNodeLimit)",
            "The SLURM job 7 is PENDING (PartitionNodeLimit); it does not start as it is: end it with `scancel 7`, and "
            "ask for less (cluster.nodes, cluster.slurm).",
        ),
        (JobState.waiting, "", ""),
        (JobState.running, " (Priority)", ""),
    ],
)
def test_a_job_that_waits_is_told_with_slurm_s_reason(state: JobState, reason: str, sentence: str) -> None:
    assert launcher.waiting_note("7", JobStatus(state, f"PENDING{reason}")) == sentence


def test_a_job_that_only_the_accounting_remembers(programs: Path) -> None:
    install(programs, "scontrol", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1")
    assert scheduler.status("1").state is JobState.unknown
    install(programs, "sacct", "echo 'CANCELLED by 1000|0:15'")
    assert scheduler.status("1") == JobStatus(JobState.ended, "CANCELLED", 143)


def test_a_machine_without_slurm_is_told_where_to_launch(programs: Path) -> None:
    with pytest.raises(DependencyMissing, match="login node"):
        scheduler.cancel("1")


def test_a_controller_that_is_down_for_a_while_does_not_end_the_waiting(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(programs, "scontrol", "echo 'Unable to contact slurm controller (connect failure)' >&2; exit 1")
    poll = launcher._Poll("1")
    assert not poll.ended()
    monkeypatch.setattr(launcher, "_MAX_SILENT_SECONDS", -1.0)
    with pytest.raises(TrainingFailure, match=r"Unable to contact slurm controller.*The job 1 may still run"):
        poll.ended()
    install(programs, "scontrol", "echo 'JobState=COMPLETED Reason=None ExitCode=0:0'")
    assert poll.ended()
