"""The settings of an egress container, as JSON in ``AWORLD_EGRESS``; ``aworld_train.env.egress`` makes them.

    {"servers": {"readweb-server": {"password": "...", "open": true, "hosts": ["wiki.internal:8080"]}},
     "forbidden": ["10.0.0.0/8", ...],
     "sockets": ["/run/aworld/0/egress.sock", ...],
     "counts": "/run/aworld/egress/counts.sock",
     "nameservers": [], "squid_port": 3128, "resolver": "127.0.0.1"}

A server reaches ``forbidden`` networks only if it names them. The last three are optional; name servers are by default
those of ``/etc/resolv.conf``.
"""

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from aworld_train.serving.egress.hosts import Host, Network, parse_host

PORT = 3128
"""The proxy's port on the loopback of tools, and Squid's port on its own loopback."""
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")


@dataclass(frozen=True)
class ProxyUser:
    """A server with egress: it reaches ``hosts``, and every public address if it ``is_open``."""

    server: str
    password: str = field(repr=False)
    is_open: bool
    hosts: tuple[Host, ...]

    @property
    def user(self) -> str:
        """Its name for the proxy, in characters that a URL, Squid and a password file take as they are."""
        return user_name(self.server)


@dataclass(frozen=True)
class Settings:
    accounts: tuple[ProxyUser, ...]
    forbidden: tuple[Network, ...]
    sockets: tuple[str, ...]
    counts: str
    nameservers: tuple[str, ...] = ()
    squid_port: int = PORT
    resolver: str = "127.0.0.1"


def read_settings(stored: Mapping[str, Any]) -> Settings:
    accounts = tuple(
        ProxyUser(name, server["password"], bool(server["open"]), tuple(map(parse_host, server["hosts"])))
        for name, server in stored["servers"].items()
    )
    if not all(len(account.password) >= 16 for account in accounts):
        raise ValueError("a password has less than 16 characters")
    return Settings(
        accounts=accounts,
        forbidden=tuple(map(ipaddress.ip_network, stored["forbidden"])),
        sockets=tuple(stored["sockets"]),
        counts=stored["counts"],
        nameservers=tuple(stored.get("nameservers", ())),
        squid_port=int(stored.get("squid_port", PORT)),
        resolver=stored.get("resolver", "127.0.0.1"),
    )


def user_name(server: str) -> str:
    return _UNSAFE.sub(lambda match: "".join(f"={byte:02X}" for byte in match[0].encode()), server)


def server_name(user: str) -> str:
    return unquote(user.replace("=", "%"))
