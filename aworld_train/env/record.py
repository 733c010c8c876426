"""An environment that was started and not taken down, described in the same way for every backend.

The process backend stores the record in a file, the Docker backend reads it from labels.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from aworld_train.env import address
from aworld_train.env.connection import EnvConnection
from aworld_train.process_supervisor import ProcessIdentity
from aworld_train.serving import tokens


@dataclass(frozen=True)
class Credentials:
    """What the tokens of an environment are made of; ``token_id`` is that of the token that `env up` prints."""

    secret: str = field(repr=False)
    token_id: str
    issued: int
    expires: int
    desktop_password: str = field(default="", repr=False)


@dataclass(frozen=True)
class Record:
    """An environment that was started and not yet taken down; it serves ``workers`` sessions (or groups) at a time.

    ``fingerprint`` is a hash of everything it was started from; ``ready``: its tools have been tested and work.
    ``starter`` is the process that starts it, ``owner`` the one it ends with; ``handle`` is its backend's.
    """

    name: str
    backend: str
    host: str
    port: int
    workers: int
    credentials: Credentials = field(repr=False)
    directory: str
    fingerprint: str
    machine: str
    owner: ProcessIdentity | None
    ready: bool
    starter: ProcessIdentity | None = None
    handle: Mapping[str, Any] = field(default_factory=dict)
    data: str = ""

    @property
    def is_elsewhere(self) -> bool:
        """Whether it is of another machine or container, whose processes this one cannot see."""
        process = self.owner if self.ready else self.starter
        return self.machine != address.machine() or (process is not None and process.is_elsewhere)

    @property
    def missing(self) -> Sequence[str]:
        return list(self.handle.get("missing", ()))

    @property
    def health(self) -> str:
        return address.url(self._ip, self.port, "/health")

    @property
    def revocations(self) -> str:
        return address.url(self._ip, self.port, "/revoke")

    @property
    def connection(self) -> EnvConnection:
        credentials = self.credentials
        password = credentials.desktop_password
        return EnvConnection(
            name=self.name,
            ip=self._ip,
            port=self.port,
            token=self.token(),
            mcp_url=address.url(self._ip, self.port, "/mcp"),
            vnc_url=address.url(self._ip, self.port, "/vnc/") if password else None,
            vnc_password=password or None,
            workers=self.workers,
            backend=self.backend,
            started_at=_iso(credentials.issued),
            expires_at=_iso(credentials.expires),
            image=self.handle.get("image") or None,
        )

    def token(
        self, expires: int | None = None, sessions: int | None = None, token_id: str | None = None
    ) -> str:
        """The environment's token, or with any limit another one, with its own id; empty before its gateway exists."""
        credentials = self.credentials
        if not credentials.secret:
            return ""
        is_other = expires is not None or sessions is not None
        return tokens.sign(
            credentials.secret,
            self.name,
            issued=credentials.issued,
            expires=credentials.expires if expires is None else expires,
            sessions=sessions,
            token_id=token_id if is_other else credentials.token_id,
        )

    @property
    def _ip(self) -> str:
        return address.public_address(self.host)


def _iso(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds") if seconds else ""
