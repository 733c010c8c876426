"""Counts of requests and bytes by server, from Squid's log."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

from aworld_train.serving.egress.settings import server_name

_FIELDS = 9  # of config.LOG_FORMAT
_UNKNOWN_SERVER = "-"


@dataclass(frozen=True)
class ProxyRequest:
    """A request to the proxy that has ended; ``server`` is empty if its credentials were wrong.

    ``reason`` of a refusal: ``address`` (forbidden), ``host`` (not one of the server's), ``name`` (does not resolve) or
    ``credentials``. ``sent`` and ``received`` are bytes, from the server and to it.
    """

    server: str
    status: int
    error: str
    reason: str
    sent: int
    received: int
    host: str
    port: str


def parse_line(line: str) -> ProxyRequest | None:
    """Parse a line of Squid's log in ``config.LOG_FORMAT``; None for a connection without a request."""
    parts = line.split(" ", _FIELDS - 1)
    if len(parts) != _FIELDS or not (parts[0].isdecimal() and parts[3].isdecimal() and parts[4].isdecimal()):
        return None
    status, error, reason, sent, received, user, method, port, host = parts
    if method == "-":
        return None
    if status == "407":
        user, reason = "-", "credentials"
    return ProxyRequest(
        server="" if user == "-" else server_name(user),
        status=int(status),
        error="" if error == "-" else error,
        reason="" if reason == "-" else reason,
        sent=int(sent),
        received=int(received),
        host=host,
        port=port,
    )


class Counts:
    """Sums since the start, by server; unknown names share one entry, so that no request can add a name."""

    def __init__(self, servers: tuple[str, ...]):
        self.restarts = 0
        self._servers = servers
        self._outcomes: Counter[tuple[str, str]] = Counter()
        self._bytes: Counter[tuple[str, str]] = Counter()

    def add(self, request: ProxyRequest) -> None:
        server = request.server if request.server in self._servers else _UNKNOWN_SERVER
        self._outcomes[server, outcome(request)] += 1
        self._bytes[server, "sent"] += request.sent
        self._bytes[server, "received"] += request.received

    def to_json(self) -> dict[str, Any]:
        return {
            "requests": _nested(self._outcomes),
            "bytes": _nested(self._bytes),
            "restarts": self.restarts,
        }


def outcome(request: ProxyRequest) -> str:
    """``ok``, ``refused_address``, ``refused_host``, ``refused_credentials``, or ``failed`` (it cannot be reached)."""
    if request.reason in ("address", "host", "credentials"):
        return f"refused_{request.reason}"
    return "failed" if request.error else "ok"


def _nested(counter: Counter[tuple[str, str]]) -> dict[str, dict[str, int]]:
    nested: dict[str, dict[str, int]] = {}
    for (server, name), count in sorted(counter.items()):
        nested.setdefault(server, {})[name] = count
    return nested
