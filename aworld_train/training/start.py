"""Starts a framework in a run folder: writes its files, watches the environment, and names the cause of a failure."""

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

from aworld_train import waits
from aworld_train.adapter.base import Nodes, RunPlan, StartFiles, TrainingFramework
from aworld_train.adapter.episodes.files import write_files
from aworld_train.adapter.episodes.record import RUN_DIR_VARIABLE
from aworld_train.errors import NO_SPACE, DiskFull, EnvironmentFailure, TrainingFailure, TransientFailure
from aworld_train.training.environment import HealthWatch, RunEnvironment
from aworld_train.training.private_folder import private_folder
from aworld_train.training.process import run_guarded

_MAX_TAIL_BYTES = 200_000
_MIN_FREE_BYTES = 4 << 20
_MAX_STARTS = 3


def log_file(folder: Path, framework: TrainingFramework) -> Path:
    return folder / "logs" / f"{framework.name}.log"


def run_plan(
    framework: TrainingFramework,
    plan: RunPlan,
    folder: Path,
    environment: RunEnvironment,
    *,
    recovery_timeout: float,
    metrics_file: Path,
    watch: Callable[[], str | None],
    worst_cause: Callable[[], str | None],
    validate_first: bool = True,
    nodes: Nodes | None = None,
    note: Callable[[str], None] = lambda _: None,
) -> None:
    """Run a plan to its end; ``watch``, called twice a second, returns the reason to stop.

    Raises EnvironmentFailure if the environment did not answer again within ``recovery_timeout`` seconds,
    TransientFailure if the framework lost a process or a machine, and TrainingFailure for all else.
    """
    log = log_file(folder, framework)
    log.parent.mkdir(parents=True, exist_ok=True)
    health = HealthWatch(environment, recovery_timeout)
    write_files(folder, plan.files)
    metrics_file.touch(mode=0o600)  # the framework opens it again and keeps the mode
    for attempt in range(1, _MAX_STARTS + 1):
        waits.forget(folder)
        log_begins = log.stat().st_size if log.exists() else 0
        with private_folder(folder) as private:
            end = run_guarded(
                [*plan.command, *(() if validate_first else plan.without_first_validation)],
                environment={
                    **os.environ,
                    **plan.environment(StartFiles(private, metrics_file, nodes)),
                    **environment.variables(),
                    RUN_DIR_VARIABLE: str(folder),
                },
                cwd=folder,
                log=log,
                watch=lambda: watch() or health.failure_reason(),
                remove=private,
            )
        log_end = _end_of(log, log_begins)
        if (
            end.stopped_because is not None
            or end.code == 0
            or attempt == _MAX_STARTS
            or metrics_file.stat().st_size > 0
            or not framework.start_failed(log_end)
        ):
            break
        note(f"{framework.name} could not start its processes in time; start {attempt + 1} of {_MAX_STARTS}.")
    if end.stopped_because is not None:
        raise (EnvironmentFailure if health.silent else TrainingFailure)(end.stopped_because)
    if end.code == 0:
        return
    errors = framework.errors_in(log_end)
    # On a full disk the log may lack the error.
    if any(NO_SPACE in line for line in errors) or shutil.disk_usage(folder).free < _MIN_FREE_BYTES:
        raise DiskFull(
            f"The disk is full: {framework.name} could not write below {folder}. Free some space and run it again."
        )
    cause = worst_cause()
    if health.silent or not environment.answers():
        raise EnvironmentFailure(
            f"The tool environment stopped answering, and no episode was left to continue with "
            f"({cause or 'it was not used yet'})."
        )
    was_killed = end.code == 128 + signal.SIGKILL
    transient = was_killed or any(framework.is_transient(text) for text in (*errors[-1:], cause or ""))
    raise (TransientFailure if transient else TrainingFailure)(
        f"The framework {framework.name} {_end_in_words(end.code)}: "
        f"{_sentence(errors[-1] if errors else 'its log names no error')} "
        + (f"{_sentence(f'Episodes were lost to: {cause}')} " if cause else "")
        + f"Its log is {log}."
    )


def _sentence(text: str) -> str:
    return f"{text.strip().rstrip('.')}."


def _end_in_words(code: int) -> str:
    """An exit code in words; 128 + n is signal n."""
    if code == 128 + signal.SIGKILL:
        return "was killed (SIGKILL; the system does that when memory runs out)"
    if code > 128:
        return f"was ended by signal {code - 128}"
    return f"ended with exit code {code}"


def _end_of(log: Path, begin: int) -> str:
    with log.open("rb") as file:
        file.seek(max(begin, log.stat().st_size - _MAX_TAIL_BYTES))
        return file.read().decode(errors="replace")
