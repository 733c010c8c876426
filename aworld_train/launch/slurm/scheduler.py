"""SLURM's commands: each call is one request with a time limit, and an error is one sentence."""

import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from aworld_train.errors import AworldTrainError, DependencyMissing, TrainingFailure
from aworld_train.launch.base import JobState, JobStatus

SUBMITTED = "AWORLD_TRAIN_SUBMITTED"
MAX_SECONDS = 60.0
_WAITING = {
    "PENDING",
    "CONFIGURING",
    "REQUEUED",
    "REQUEUE_HOLD",
    "SPECIAL_EXIT",
    "RESV_DEL_HOLD",
    "REQUEUE_FED",
}
_RUNNING = {"RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING"}
_FIELD = re.compile(r"(?:^| )(\w+)=(\S*)")


def submit(script: Path) -> str:
    """Submit a script with this process's environment variables; returns the job's number."""
    # An option on the command line takes precedence over SBATCH_EXPORT, by which a site may switch this off.
    output = _run("sbatch", "--parsable", f"--export=ALL,{SUBMITTED}=1", str(script))
    return output.strip().splitlines()[-1].split(";")[0]


def status(job: str) -> JobStatus:
    try:
        fields = _fields(_run("scontrol", "show", "job", "-o", job))
        reason = f" ({fields['Reason']})" if fields.get("Reason", "None") != "None" else ""
        return _status(fields["JobState"], reason, fields.get("ExitCode", ""))
    except TrainingFailure as error:
        if "Invalid job id" not in error.message:
            raise
    # SLURM forgets a job some minutes after its end, but for its accounting, which not every site has.
    try:
        output = _run("sacct", "-X", "-n", "-P", "-o", "State,ExitCode", "-j", job)
        state, exit_code = output.strip().splitlines()[-1].split("|")
        return _status(state.split()[0], "", exit_code)
    except (AworldTrainError, IndexError, ValueError):
        return JobStatus(JobState.unknown, f"unknown to SLURM (job {job})")


def cancel(job: str) -> None:
    _run("scancel", job)


def requeue(job: str) -> None:
    """Put the job back into the queue, which ends its processes."""
    _run("scontrol", "requeue", job)


def node_names(node_list: str) -> list[str]:
    return _run("scontrol", "show", "hostnames", node_list).split()


def node_addresses(names: Sequence[str]) -> dict[str, str]:
    lines = _run("scontrol", "show", "node", "-o", ",".join(names)).splitlines()
    fields = [_fields(line) for line in lines if line.strip()]
    return {entry["NodeName"]: entry["NodeAddr"] for entry in fields}


def _status(state: str, reason: str, exit_code: str) -> JobStatus:
    known = (
        JobState.waiting if state in _WAITING else JobState.running if state in _RUNNING else JobState.ended
    )
    return JobStatus(known, f"{state}{reason}", _exit_code(exit_code) if known is JobState.ended else None)


def _exit_code(pair: str) -> int | None:
    code, _, number = pair.partition(":")
    if not code.isdecimal():
        return None
    return 128 + int(number) if number.isdecimal() and int(number) else int(code)


def _fields(line: str) -> dict[str, str]:
    return dict(_FIELD.findall(line))


def _run(program: str, *arguments: str) -> str:
    if shutil.which(program) is None:
        raise DependencyMissing(
            f"The command {program} is not on the PATH. Launch from a machine of the SLURM cluster, such as its login "
            "node."
        )
    try:
        done = subprocess.run(
            [program, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=MAX_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise TrainingFailure(f"SLURM did not answer {program} within {MAX_SECONDS:.0f} seconds.") from None
    if done.returncode != 0:
        reason = " ".join(line.strip() for line in done.stderr.splitlines() if line.strip())
        raise TrainingFailure(f"SLURM refused {program}: {reason or f'exit code {done.returncode}'}.")
    return done.stdout
