"""What a backend is: a way to run an environment's gateway and workers, as containers or as processes of this machine.

A backend starts, stops, finds and lists environments. Names, health and tools are the same for every backend and are
left to ``lifecycle``; ``backend_choice`` decides which backend runs an environment.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from aworld_train.env.directory import EnvDirectory
from aworld_train.env.egress import EgressRule
from aworld_train.env.record import Credentials, Owner, Record

ProgressReporter = Callable[[str], None]
"""Takes a line about the current step, for a person."""


@dataclass(frozen=True)
class Size:
    """What one worker may use; a process worker is not limited.

    Attributes:
        cpus: Processor cores.
        memory: Bytes.
    """

    cpus: float = 2.0
    memory: int = 4 << 30


@dataclass(frozen=True)
class EnvPlan:
    """An environment to start.

    Attributes:
        name: Its name.
        directory: What to run.
        servers: Which tool servers, by name; the others are off.
        only: Which of them the image has to have, where that was said; empty: all.
        host: Address to listen on.
        port: Port to listen on; free a moment ago.
        workers: How many.
        size: How large each of them.
        credentials: What its tokens are made of.
        keys: Variables with secrets, for the servers that declare them.
        fingerprint: A hash of all that decides what runs.
        limits: Of the gateway; see ``serving.gateway.app.Limits``.
        owner: The process it ends with, if any.
        starter: The process that starts it.
        data: Folder that tools may read; see ``attachments``.
        desktop: Whether each worker has one.
        egress: What each server may reach, by server; those that may reach nothing are not there.
        egress_passwords: What these servers show to the proxy.
        scoring_workers: How many more there are that run the code of answers to be scored, and serve no agent.
        runtime: The engine's runtime for workers, such as gVisor's ``runsc``; empty: the engine's default.
        pull: Whether to look for a newer base image.
        rebuild: Whether to build the image from nothing.
        prepared: What `Backend.prepare` gave.
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
    owner: Owner | None
    starter: Owner
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
        """How many there are of both kinds; those for scoring come last."""
        return self.workers + self.scoring_workers


class Backend(Protocol):
    """A way of running environments. Every call but `prepare` and following logs is bounded in time."""

    @property
    def name(self) -> str:
        """Its name on the command line."""
        ...

    def records(self) -> list[Record]:
        """All environments that were started with it and not taken down."""
        ...

    def find(self, name: str) -> Record | None:
        """The environment of that name."""
        ...

    def prepare(self, plan: EnvPlan, report_progress: ProgressReporter) -> str:
        """Make what it runs from, and name it: an image, or an interpreter with the packages needed. May take minutes.

        Raises:
            EnvironmentFailure: It cannot be made; the end of the log is in the message.
        """
        ...

    def start(self, plan: EnvPlan) -> Record:
        """Start what was prepared, and return at once, before it answers.

        Raises:
            EnvironmentFailure: It cannot be started; nothing is left running.
        """
        ...

    def mark_ready(self, record: Record) -> None:
        """Remember that its tools have been seen to work."""
        ...

    def stop(self, record: Record) -> None:
        """Stop all of it and forget it; nothing happens where it has ended already.

        Raises:
            EnvironmentFailure: Something is still there.
        """
        ...

    def runs(self, record: Record) -> bool:
        """Whether the environment that ``record`` means, and no other, is still running."""
        ...

    def logs(self, record: Record, lines: int, follow: bool) -> Iterator[str]:
        """The last lines that it wrote, and those to come."""
        ...

    def leftovers(self) -> list[str]:
        """Names of which there is something, but no environment: what a start that was killed left behind."""
        ...

    def remove(self, name: str) -> None:
        """Remove everything of that name, whatever state it is in."""
        ...
