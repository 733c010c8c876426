"""A backend: a way to run an environment's gateway and workers, in containers or as processes of this machine."""

import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from aworld_train.env.directory import EnvDirectory
from aworld_train.env.egress import EgressRule
from aworld_train.env.record import Credentials
from aworld_train.errors import UsageError
from aworld_train.process_supervisor import ProcessIdentity

_DAY = 86400
ProgressReporter = Callable[[str], None]
"""Takes a line about the current step, for a person; a `Remark` is about more than the step."""

_MAX_DEFAULT_WORKERS = 4
_WORKERS_PER_CORE = 2  # tools wait most of the time
_WORKER_BYTES = 600_000_000  # the most that a worker of gaia-mcp-server held in 125 calls of its tools
_MEMORY_SHARE = 0.5


class Remark(str):
    """A line of progress that has to be read, such as a warning, and is not replaced by the next line."""

    __slots__ = ()


@dataclass(frozen=True)
class Size:
    """What one worker may use, ``memory`` in bytes; a process worker is not limited."""

    cpus: float = 2.0
    memory: int = 4 << 30


@dataclass(frozen=True)
class EnvSettings:
    """How an environment is started, by `env up`, by a recipe's section ``env`` or in Python; see ``env up --help``.

    By default there are as many ``workers`` as cores, four at most, and one where sessions share a worker; with a known
    number of ``sessions`` at a time as many as these, as far as the machine's cores and free memory go. An image that
    is built for chosen ``servers`` may lack what others need. ``egress`` is the most that any server may reach (see
    ``aworld_train.env.egress``); ``limits`` are the gateway's (``GatewayLimits``). ``ttl`` and ``wait`` are seconds; a
    busy machine has taken 56 to start.
    """

    name: str | None = None
    backend: str = "auto"
    host: str = "127.0.0.1"
    port: int = 0
    workers: int | None = None
    sessions: int | None = None
    servers: tuple[str, ...] = ()
    env_file: Path | None = None
    data: Path | None = None
    size: Size = field(default_factory=Size)
    desktop: bool = False
    egress: str | None = None
    egress_hosts: Collection[str] = ()
    scoring_workers: int = 0
    runtime: str = ""
    ttl: float = 30 * _DAY
    limits: Mapping[str, float] = field(default_factory=dict)
    wait: float = 300.0
    pull: bool = False
    rebuild: bool = False

    def __post_init__(self) -> None:
        if self.scoring_workers < 0:
            raise UsageError(f"--scoring-workers is {self.scoring_workers}: it has to be 0 or more.")


@dataclass(frozen=True)
class EnvPlan:
    """An environment to start, with what its settings leave open.

    ``keys`` are variables with secrets, for the servers that declare them. ``fingerprint`` is a hash of all that
    decides what runs, ``owner`` the process it ends with, ``data`` the folder of attachments, ``prepared`` what
    `prepare` made.
    """

    name: str
    directory: EnvDirectory
    settings: EnvSettings
    servers: tuple[str, ...]
    workers: int
    credentials: Credentials = field(repr=False)
    keys: Mapping[str, str] = field(repr=False)
    starter: ProcessIdentity
    owner: ProcessIdentity | None = None
    host: str = ""
    port: int = 0
    fingerprint: str = ""
    data: Path | None = None
    egress: Mapping[str, EgressRule] = field(default_factory=dict)
    egress_passwords: Mapping[str, str] = field(default_factory=dict, repr=False)
    prepared: str = ""

    @property
    def all_workers(self) -> int:
        """The number of workers of both kinds; those for scoring come last."""
        return self.workers + self.settings.scoring_workers


def worker_count(directory: EnvDirectory, count: int | None, sessions: int | None) -> int:
    if count is not None and count < 1:
        raise UsageError(f"--workers is {count}: there has to be at least one.")
    if count is not None:
        return count
    if directory.manifest.sessions_per_worker > 1:
        return 1
    cores = os.cpu_count() or 1
    if sessions is None:
        return min(cores, _MAX_DEFAULT_WORKERS)
    in_memory = psutil.virtual_memory().available * _MEMORY_SHARE // _WORKER_BYTES
    return max(1, min(sessions, cores * _WORKERS_PER_CORE, int(in_memory)))
