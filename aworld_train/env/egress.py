"""What the tool servers of an environment may reach from their containers: each server's rule, below a common ceiling.

| the ceiling | a server with ``none`` | with ``listed`` | with ``open`` |
|---|---|---|---|
| ``none`` | nothing | nothing | nothing |
| ``listed`` | nothing | its hosts, the environment's | its hosts, the environment's |
| ``open``, or not set | nothing | its hosts, the environment's | those, and every public address |

So a ceiling never gives a server more than its manifest does. The operator's hosts are added for every server that may
reach any; a server that is ``listed`` and has no host has no egress.

A host that is named may be at any address, a private one too. Below a domain (``.example.org``) and for ``open``, an
address in `forbidden_networks` is refused, whatever name resolves to it.
"""

import ipaddress
import secrets
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import psutil

from aworld_train.errors import UsageError, suggestion
from aworld_train.serving.egress.hosts import Host, Network, resolve_hosts
from aworld_train.serving.manifest import Manifest

Mode = Literal["none", "listed", "open"]
_MODES: tuple[Mode, ...] = get_args(Mode)
_NOT_PUBLIC = (
    # https://www.iana.org/assignments/iana-ipv4-special-registry, also those that it calls globally reachable: they
    # are relays and name servers of networks, which no tool has to reach.
    *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"),
    *(
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.31.196.0/24",
        "192.52.193.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
    ),
    *("192.175.48.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4"),
    "224.0.0.0/4",  # https://www.iana.org/assignments/multicast-addresses
    # Public by its number, but the host of a machine at Azure (https://learn.microsoft.com/azure/virtual-network/
    # what-is-ip-address-168-63-129-16).
    "168.63.129.16/32",
    # RFC 4291: global unicast is 2000::/3. All else is local, reserved, or stands for an IPv4 address.
    *("::/3", "4000::/2", "8000::/1"),
    # https://www.iana.org/assignments/iana-ipv6-special-registry, as far as it is in 2000::/3.
    *("2001::/23", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3fff::/20"),
)
_PASSWORD_BYTES = 32


@dataclass(frozen=True)
class EgressRule:
    """What one server may reach: ``hosts``, and every public address if it ``is_open``."""

    is_open: bool
    hosts: tuple[Host, ...]


def egress_rules(
    manifest: Manifest,
    servers: Collection[str],
    keys: Mapping[str, str],
    ceiling: str | None = None,
    hosts: Collection[str] = (),
) -> dict[str, EgressRule]:
    """The rules of the servers that have egress, by server; ``$NAME`` in their own hosts is looked up in ``keys``."""
    common = _common_hosts(hosts)
    if _checked_ceiling(ceiling) == "none":
        return {}
    rules = {}
    for name in servers:
        entry = manifest.servers[name]
        if entry.egress == "none":
            continue
        try:
            own = resolve_hosts(entry.egress_hosts, keys)
        except ValueError as error:
            raise UsageError(
                f"The server {name!r} of {manifest.name} cannot have its egress_hosts: {error}."
            ) from error
        rule = EgressRule(
            is_open=entry.egress == "open" and ceiling != "listed",
            hosts=tuple(dict.fromkeys((*own, *common))),
        )
        if rule.is_open or rule.hosts:
            rules[name] = rule
    return rules


def egress_passwords(rules: Mapping[str, EgressRule]) -> dict[str, str]:
    return {name: secrets.token_urlsafe(_PASSWORD_BYTES) for name in rules}


def egress_settings(
    rules: Mapping[str, EgressRule],
    passwords: Mapping[str, str],
    sockets: Iterable[str],
    counts: str,
    forbidden: Iterable[Network],
) -> dict[str, Any]:
    return {
        "servers": {
            name: {"password": passwords[name], **described}
            for name, described in described_rules(rules).items()
        },
        "forbidden": list(map(str, forbidden)),
        "sockets": list(sockets),
        "counts": counts,
    }


def described_rules(rules: Mapping[str, EgressRule]) -> dict[str, dict[str, Any]]:
    return {name: {"open": rule.is_open, "hosts": list(map(str, rule.hosts))} for name, rule in rules.items()}


def forbidden_networks(more: Iterable[str] = ()) -> tuple[Network, ...]:
    """The networks that no server reaches without naming them: all that are not public, and ``more``.

    ``more`` are the addresses of the engine's machine (`machine_addresses`) and its other networks.
    """
    networks = [ipaddress.ip_network(network, strict=False) for network in (*_NOT_PUBLIC, *more)]
    four = [network for network in networks if isinstance(network, ipaddress.IPv4Network)]
    six = [network for network in networks if isinstance(network, ipaddress.IPv6Network)]
    return (*ipaddress.collapse_addresses(four), *ipaddress.collapse_addresses(six))


def machine_addresses() -> tuple[str, ...]:
    """The addresses of this machine, for when the engine runs on it, but for one behind address translation."""
    addresses = set()
    for interface in psutil.net_if_addrs().values():
        for entry in interface:
            try:
                addresses.add(str(ipaddress.ip_address(entry.address.partition("%")[0])))
            except ValueError:
                continue  # a hardware address
    return tuple(sorted(addresses))


def _checked_ceiling(ceiling: str | None) -> str | None:
    if ceiling is not None and ceiling not in _MODES:
        raise UsageError(
            f"The egress of an environment cannot be {ceiling!r}.{suggestion(ceiling, _MODES)} It is one of "
            f"{', '.join(_MODES)}."
        )
    return ceiling


def _common_hosts(hosts: Collection[str]) -> tuple[Host, ...]:
    try:
        return resolve_hosts(tuple(_without_variable(host) for host in hosts), {})
    except ValueError as error:
        raise UsageError(
            f"The environment cannot have its egress_hosts: {error}. They are names (`pypi.org`, `.wikipedia.org` with "
            "its subdomains), addresses and networks, with a port (`pypi.org:443`) to allow only that one."
        ) from error


def _without_variable(host: str) -> str:
    if host.startswith("$"):
        raise ValueError(f"{host!r} is a variable, and those are for the servers of a manifest")
    return host
