"""The state of the environments that were started, without their secrets; reading it changes nothing."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from aworld_train.env.backend_choice import open_backend, usable_backends
from aworld_train.env.health import read_health
from aworld_train.env.record import Record


@dataclass(frozen=True)
class EnvStatus:
    """An environment as it is now; nothing in it is secret.

    ``state`` is ``up``; ``starting`` (its tools have not been tested yet); ``unhealthy`` (it runs, but none of its
    workers does, or some of it is missing); ``dead`` (it ended unexpectedly); ``abandoned`` (its start was interrupted,
    or its owner has ended); or ``elsewhere`` (on another machine). ``refused`` counts outgoing requests; None where it
    has no egress.
    """

    name: str
    state: str
    missing: list[str]
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


def status(name: str | None = None) -> list[EnvStatus]:
    records = [record for backend in usable_backends() for record in backend.records()]
    return [_status(record) for record in records if name in (None, record.name)]


def log_lines(record: Record, lines: int, follow: bool = False) -> Iterator[str]:
    """The last lines that an environment wrote, and with ``follow`` those to come; its secrets are replaced."""
    secrets = [record.credentials.secret, record.credentials.desktop_password, record.connection.token]
    for line in open_backend(record.backend).logs(record, lines, follow):
        for secret in filter(None, secrets):
            line = line.replace(secret, "[secret]")
        yield line


def names() -> list[str]:
    return sorted(one.name for one in status())


def _status(record: Record) -> EnvStatus:
    health = None if record.is_elsewhere else read_health(record.health)
    connection = record.connection
    return EnvStatus(
        name=record.name,
        state=_state(record, health),
        missing=list(record.missing),
        backend=record.backend,
        mcp_url=connection.mcp_url if record.port else "",
        workers=health["workers"] if health else {},
        sessions=health["sessions"] if health else None,
        queued=health["queued"] if health else None,
        refused=health["egress"]["refused"] if health and health.get("egress") else None,
        servers=health["servers"] if health else [],
        started_at=connection.started_at,
        expires_at=connection.expires_at,
        directory=record.directory,
        data=record.data or None,
        owner_pid=record.owner.pid if record.owner else None,
        machine=record.machine,
    )


def _state(record: Record, health: dict[str, Any] | None) -> str:
    if record.is_elsewhere:
        return "elsewhere"
    expected = record.owner if record.ready else record.starter
    if expected is not None and expected.find() is None:
        return "abandoned"
    if not open_backend(record.backend).runs(record):
        return "dead"
    if not record.ready:
        return "starting"
    is_whole = health is not None and health["status"] == "ok" and not record.missing
    return "up" if is_whole else "unhealthy"
