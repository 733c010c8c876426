"""An environment that was started and not taken down: what its backend knows of it, in the words of all backends.

For processes it is a file, for containers it is read from their labels; nobody else has to know which.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from aworld_train.env import address
from aworld_train.env.connection import EnvConnection
from aworld_train.serving import tokens


@dataclass(frozen=True)
class Owner:
    """A process that an environment must not outlive.

    Attributes:
        pid: Its process id.
        started: When it was created (Unix time, seconds): a pid alone may come to mean another process.
    """

    pid: int
    started: float


@dataclass(frozen=True)
class Credentials:
    """What the tokens of an environment are made of.

    Attributes:
        secret: Known to its gateway, and to those who may manage it.
        token_id: Name of the token that `env up` prints.
        issued: Unix time, seconds.
        expires: Unix time, seconds.
        desktop_password: Opens the desktop pages; empty where there are none.
    """

    secret: str = field(repr=False)
    token_id: str
    issued: int
    expires: int
    desktop_password: str = field(default="", repr=False)


@dataclass(frozen=True)
class Record:
    """An environment that was started and not yet taken down.

    Attributes:
        name: Name it was started under.
        backend: What runs it.
        host: Address its gateway listens on.
        port: TCP port of its gateway.
        workers: How many sessions (or groups of sessions) it serves at a time.
        credentials: What its tokens are made of.
        directory: Path of its environment directory.
        fingerprint: A hash of everything it was started from; another one means "not what is asked for".
        machine: Host it runs on.
        owner: The process it ends with, if any.
        ready: Whether its tools have been seen to work.
        starter: The process that starts it, until it is ready.
        handle: What its backend needs to find it again.
        data: Path of the folder that its tools may read; empty where there is none.
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
    owner: Owner | None
    ready: bool
    starter: Owner | None = None
    handle: Mapping[str, Any] = field(default_factory=dict)
    data: str = ""

    @property
    def is_elsewhere(self) -> bool:
        """Whether it runs on another machine, where its processes mean nothing to this one."""
        return self.machine != address.machine()

    @property
    def health(self) -> str:
        """URL that answers when it is alive."""
        return address.url(self._ip, self.port, "/health")

    @property
    def revocations(self) -> str:
        """URL at which tokens are revoked."""
        return address.url(self._ip, self.port, "/revoke")

    @property
    def connection(self) -> EnvConnection:
        """How to reach it; the same for as long as it is up."""
        made = self.credentials
        password = made.desktop_password
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
            started_at=_iso(made.issued),
            expires_at=_iso(made.expires),
        )

    def token(
        self, expires: int | None = None, sessions: int | None = None, token_id: str | None = None
    ) -> str:
        """The environment's token, or another one with its own limits, and its own id."""
        made = self.credentials
        other = expires is not None or sessions is not None
        return tokens.sign(
            made.secret,
            self.name,
            issued=made.issued,
            expires=made.expires if expires is None else expires,
            sessions=sessions,
            token_id=token_id if other else made.token_id,
        )

    @property
    def _ip(self) -> str:
        return address.public_address(self.host)


def _iso(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
