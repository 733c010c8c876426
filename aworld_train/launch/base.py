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
"""``module:class`` by name; the module is imported when the launcher is used."""


@dataclass(frozen=True)
class LaunchOptions:
    """What the command line says about one launch.

    Attributes:
        resume: Go on from the last checkpoint.
        quiet: Show no progress.
        detach: Return once the job is submitted.
        submit: Submit what was rendered, where rendering alone is the default (Kubernetes).
    """

    resume: bool = False
    quiet: bool = False
    detach: bool = False
    submit: bool = False


class JobState(Enum):
    """The state of a job."""

    waiting = "waiting"
    running = "running"
    ended = "ended"
    unknown = "unknown"


@dataclass(frozen=True)
class JobStatus:
    """What the scheduler says about a job.

    Attributes:
        state: The state in the package's words.
        detail: The scheduler's own words, such as ``PENDING (Priority)``.
        exit_code: Exit code of a job that has ended; None if the scheduler does not know it.
    """

    state: JobState
    detail: str
    exit_code: int | None = None


class DryRun(NamedTuple):
    """What a launch would write and start.

    Attributes:
        files: Text of the files, by name in the folder.
        config: Name of the file among them that a person reads.
        command: Program and arguments.
    """

    files: Mapping[str, str]
    config: str
    command: Sequence[str]


class Launcher(Protocol):
    """A place where runs run. A constructor takes no arguments and contacts nothing.

    Attributes:
        name: As in ``cluster.launcher``.
    """

    name: str

    def launch(self, processor: FrameworkProcessor, options: LaunchOptions) -> RunSummary | None:
        """Run a checked recipe, by default to its end.

        Args:
            processor: Has checked the recipe (``loaded``); its ``run_dir`` is the run folder.
            options: What the command line says.

        Returns:
            The summary of a completed run; None if the job was only submitted or rendered.

        Raises:
            AworldTrainError: The run was not completed, or the job could not be submitted.
            KeyboardInterrupt: The user interrupted. A submitted job goes on.
        """

    def dry_run(self, processor: FrameworkProcessor, folder: Path) -> DryRun:
        """What a launch would write and start, with its files in ``folder``; writes and starts nothing."""

    def status(self, run_dir: Path) -> JobStatus:
        """The state of the job that ``launch.json`` in the run folder names."""

    def stop(self, run_dir: Path) -> None:
        """End the job that ``launch.json`` names and wait, within a limit, until it has ended."""

    def logs(self, run_dir: Path, *, follow: bool) -> Iterator[str]:
        """Lines of the job's log, without line ends; with ``follow`` until the job has ended."""


def find(name: str) -> Launcher:
    """The launcher of this name."""
    if name not in _LAUNCHERS:
        raise UsageError(f"There is no launcher {name!r}; known: {', '.join(_LAUNCHERS)}.")
    module, _, class_name = _LAUNCHERS[name].partition(":")
    launcher: Launcher = getattr(import_module(module), class_name)()
    return launcher


def launcher_of(run_dir: Path) -> Launcher:
    """The launcher that started the run in a folder: that of ``launch.json``, or ``local`` without one."""
    record = read_record(run_dir)
    return find(record.launcher if record else "local")
