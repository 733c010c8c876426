"""How the environments are that were started: looked at, never changed, and told without their secrets."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from aworld_train import process_supervisor
from aworld_train.env.backend_choice import open_backend, usable_backends
from aworld_train.env.health import read_health
from aworld_train.env.record import Record


@dataclass(frozen=True)
class EnvStatus:
    """An environment as it is now; nothing in it is secret.

    Attributes:
        state: ``up``; ``starting`` (its tools have not been seen to work yet); ``unhealthy`` (it runs, and none of
            its workers does); ``dead`` (it ended by itself); ``abandoned`` (its start was cut off, or its owner is
            gone); ``elsewhere`` (it is on another machine).
        workers: How many there are, by what they do; empty where the gateway does not answer.
        sessions: How many are open.
        queued: How many wait for a worker.
        refused: How many requests of its tools to the outside were refused; None where they have no way out.
        data: Folder that its tools may read, if any.
        owner_pid: The process it ends with, if any.
    """

    name: str
    state: str
    backend: str
    mcp_url: str
    workers: dict[str, int]
    sessions: int | None
    queued: int | None
    refused: int | None
    servers: list[str]
    started_at: str
    expires_at: str
    directory: str
    data: str | None
    owner_pid: int | None
    machine: str

    def to_json(self) -> dict[str, Any]:
        """Its fields."""
        return asdict(self)


def status(name: str | None = None) -> list[EnvStatus]:
    """How every environment is that was started and not taken down, or the one of that name.

    An unknown name gives an empty list.
    """
    records = [record for backend in usable_backends() for record in backend.records()]
    return [_status(record) for record in records if name in (None, record.name)]


def log_lines(record: Record, lines: int, follow: bool = False) -> Iterator[str]:
    """The last lines that an environment wrote, and with ``follow`` those to come; its secrets are blotted out."""
    secrets = [record.credentials.secret, record.credentials.desktop_password, record.connection.token]
    for line in open_backend(record.backend).logs(record, lines, follow):
        for secret in filter(None, secrets):
            line = line.replace(secret, "[secret]")
        yield line


def names() -> list[str]:
    """The names of all environments."""
    return sorted(one.name for one in status())


def _status(record: Record) -> EnvStatus:
    said = None if record.is_elsewhere else read_health(record.health)
    connection = record.connection
    return EnvStatus(
        name=record.name,
        state=_state(record, said),
        backend=record.backend,
        mcp_url=connection.mcp_url,
        workers=said["workers"] if said else {},
        sessions=said["sessions"] if said else None,
        queued=said["queued"] if said else None,
        refused=said["egress"]["refused"] if said and said.get("egress") else None,
        servers=said["servers"] if said else [],
        started_at=connection.started_at,
        expires_at=connection.expires_at,
        directory=record.directory,
        data=record.data or None,
        owner_pid=record.owner.pid if record.owner else None,
        machine=record.machine,
    )


def _state(record: Record, said: dict[str, Any] | None) -> str:
    if record.is_elsewhere:
        return "elsewhere"
    expected = record.owner if record.ready else record.starter
    if expected is not None and process_supervisor.find_process(expected.pid, expected.started) is None:
        return "abandoned"
    if not open_backend(record.backend).runs(record):
        return "dead"
    if not record.ready:
        return "starting"
    return "up" if said is not None and said["status"] == "ok" else "unhealthy"
