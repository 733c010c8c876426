"""What an egress container is told, as JSON in ``AWORLD_EGRESS``: made by ``aworld_train.env.egress``.

    {"servers": {"readweb-server": {"password": "...", "open": true, "hosts": ["wiki.internal:8080"]}},
     "forbidden": ["10.0.0.0/8", ...],
     "sockets": ["/run/aworld/0/egress.sock", ...],
     "counts": "/run/aworld/egress/counts.sock",
     "nameservers": [], "squid_port": 3128, "resolver": "127.0.0.1"}

``forbidden`` are the networks that no server reaches but by naming them; ``sockets`` lead to the proxy, ``counts``
answers ``GET /counts``; without ``nameservers``, those of ``/etc/resolv.conf`` are asked. The last three are optional.
"""

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from aworld_train.serving.egress.hosts import Host, Network, parse_host

PORT = 3128
"""Where tools find the proxy, on their loopback, and where Squid listens on its own."""
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")


@dataclass(frozen=True)
class ProxyUser:
    """A server with a way out.

    Attributes:
        server: Its name.
        password: For the proxy.
        is_open: Whether it may reach every public address.
        hosts: What it may reach beside.
    """

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
    """What an egress container is told; see this module."""

    accounts: tuple[ProxyUser, ...]
    forbidden: tuple[Network, ...]
    sockets: tuple[str, ...]
    counts: str
    nameservers: tuple[str, ...] = ()
    squid_port: int = PORT
    resolver: str = "127.0.0.1"


def read_settings(stored: Mapping[str, Any]) -> Settings:
    """The settings in a JSON object.

    Raises:
        ValueError: A value is not what it has to be.
        KeyError: One is missing: an egress container that is told too little does not run.
    """
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
    """The name by which the proxy knows a server."""
    return _UNSAFE.sub(lambda found: "".join(f"={byte:02X}" for byte in found[0].encode()), server)


def server_name(user: str) -> str:
    """The server that the proxy knows by that name."""
    return unquote(user.replace("=", "%"))
