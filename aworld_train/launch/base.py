"""The interface of a launcher, and the lookup of a launcher by its name (the recipe's ``cluster.launcher``)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import NamedTuple, Protocol

from aworld_train.errors import UsageError
from aworld_train.launch.record import read_record
from aworld_train.training.framework_processor import FrameworkProcessor
from aworld_train.training.summary import RunSummary

_LAUNCHERS = {
    "local": "aworld_train.launch.local:LocalLauncher",
    "slurm": "aworld_train.launch.slurm:SlurmLauncher",
    "ray": "aworld_train.launch.ray_job:RayLauncher",
    "kubernetes": "aworld_train.launch.kubernetes:KubernetesLauncher",
}
"""Imported when the launcher is used."""


@dataclass(frozen=True)
class LaunchOptions:
    """What the command line says; ``submit`` is for Kubernetes, where a run is only rendered by default."""

    resume: bool = False
    quiet: bool = False
    detach: bool = False
    submit: bool = False


class JobState(Enum):
    waiting = "waiting"
    running = "running"
    ended = "ended"
    unknown = "unknown"


@dataclass(frozen=True)
class JobStatus:
    state: JobState
    detail: str
    exit_code: int | None = None


class DryRun(NamedTuple):
    """What a launch would write and start; ``config`` is the file among ``files`` that a person reads."""

    files: Mapping[str, str]
    config: str
    command: Sequence[str]


class Launcher(Protocol):
    """A place where runs run. A constructor takes no arguments and contacts nothing."""

    name: str

    def launch(self, processor: FrameworkProcessor, options: LaunchOptions) -> RunSummary | None:
        """Run a checked recipe to its end, or only submit or render it (None); Ctrl-C does not end a submitted job."""

    def dry_run(self, processor: FrameworkProcessor, folder: Path) -> DryRun:
        """What a launch would write and start, with its files in ``folder``; writes and starts nothing."""

    def status(self, run_dir: Path) -> JobStatus: ...

    def stop(self, run_dir: Path) -> None:
        """End the job that ``launch.json`` names and wait, within a limit, until it has ended."""

    def logs(self, run_dir: Path, *, follow: bool) -> Iterator[str]:
        """Lines of the job's log, without line ends; with ``follow`` until the job has ended."""


def find(name: str) -> Launcher:
    if name not in _LAUNCHERS:
        raise UsageError(f"Unknown launcher {name!r}; known: {', '.join(_LAUNCHERS)}.")
    module, _, class_name = _LAUNCHERS[name].partition(":")
    launcher: Launcher = getattr(import_module(module), class_name)()
    return launcher


def refuse_second_job(launcher: Launcher, run_dir: Path) -> None:
    record = read_record(run_dir)
    if record is None or record.launcher != launcher.name:
        return
    status = launcher.status(run_dir)
    if status.state in (JobState.waiting, JobState.running):
        raise UsageError(
            f"The run in {run_dir} has a job already: {record.job} ({status.detail}). Follow it with `aworld-train "
            "runs attach`, or end it with `aworld-train runs stop`."
        )


def launcher_of(run_dir: Path) -> Launcher:
    record = read_record(run_dir)
    return find(record.launcher if record else "local")
