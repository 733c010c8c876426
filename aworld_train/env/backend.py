"""A backend: a way to run an environment's gateway and workers, in containers or as processes of this machine."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from aworld_train.env.directory import EnvDirectory
from aworld_train.env.egress import EgressRule
from aworld_train.env.record import Credentials, Record
from aworld_train.process_supervisor import ProcessIdentity

ProgressReporter = Callable[[str], None]
"""Takes a line about the current step, for a person; a `Remark` is about more than the step."""


class Remark(str):
    """A line of progress that has to be read, such as a warning, and is not replaced by the next line."""

    __slots__ = ()


@dataclass(frozen=True)
class Size:
    """What one worker may use, ``memory`` in bytes; a process worker is not limited."""

    cpus: float = 2.0
    memory: int = 4 << 30


@dataclass(frozen=True)
class EnvPlan:
    """An environment to start.

    Attributes:
        name: Its name.
        directory: Its tool servers.
        servers: Which tool servers, by name; the others are off.
        only: The servers that the user named, which the image has to have; empty: all.
        host: Address to listen on.
        port: Port to listen on.
        workers: How many run agents' sessions.
        size: Limits of each worker.
        credentials: What its tokens are made of.
        keys: Variables with secrets, for the servers that declare them.
        fingerprint: A hash of all that decides what runs.
        limits: Of the environment gateway; see ``serving.env_gateway.app.GatewayLimits``.
        owner: The process it ends with, if any.
        starter: The process that starts it.
        data: Folder that tools may read; see ``attachments``.
        desktop: Whether each worker has one.
        egress: What each server may reach, by server; a server that may reach nothing has no entry.
        egress_passwords: The passwords of these servers for the proxy.
        scoring_workers: How many more workers run the code of answers that are scored, and serve no agent.
        runtime: The engine's runtime for workers, such as gVisor's ``runsc``; empty: the engine's default.
        pull: Whether to look for a newer base image.
        rebuild: Whether to build the image from nothing.
        prepared: The result of `Backend.prepare`.
    """

    name: str
    directory: EnvDirectory
    servers: tuple[str, ...]
    host: str
    port: int
    workers: int
    size: Size
    credentials: Credentials = field(repr=False)
    keys: Mapping[str, str] = field(repr=False)
    fingerprint: str
    limits: Mapping[str, float]
    owner: ProcessIdentity | None
    starter: ProcessIdentity
    only: tuple[str, ...] = ()
    data: Path | None = None
    desktop: bool = False
    egress: Mapping[str, EgressRule] = field(default_factory=dict)
    egress_passwords: Mapping[str, str] = field(default_factory=dict, repr=False)
    scoring_workers: int = 0
    runtime: str = ""
    pull: bool = False
    rebuild: bool = False
    prepared: str = ""

    @property
    def all_workers(self) -> int:
        """The number of workers of both kinds; those for scoring come last."""
        return self.workers + self.scoring_workers


class Backend(Protocol):
    """A way to run environments. Every call but `prepare` and following logs ends within a limited time."""

    @property
    def name(self) -> str: ...

    def records(self) -> list[Record]:
        """All environments that were started with it and not taken down."""
        ...

    def find(self, name: str) -> Record | None: ...

    def prepare(self, plan: EnvPlan, report_progress: ProgressReporter) -> str:
        """Make what it runs from, which may take minutes, and return its name: an image, or an interpreter's path."""
        ...

    def start(self, plan: EnvPlan) -> Record:
        """Start what was prepared, and return before it answers."""
        ...

    def mark_ready(self, record: Record) -> None: ...

    def stop(self, record: Record) -> None:
        """Stop all of it and remove its record; it may have ended already."""
        ...

    def runs(self, record: Record) -> bool:
        """Whether the environment of ``record``, and no other of its name, is still running."""
        ...

    def logs(self, record: Record, lines: int, follow: bool) -> Iterator[str]: ...

    def remove(self, name: str) -> None: ...
