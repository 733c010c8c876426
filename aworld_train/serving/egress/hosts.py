"""Hosts as users and manifests write them: ``pypi.org``, ``.wikipedia.org``, ``10.0.0.5:8080``, ``10.1.0.0/16``.

An address or network matches requests with a literal address, not a name that resolves to it.
"""

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_DEFAULT_PORTS = {"http": 80, "https": 443}
_MAX_NAME_LENGTH = 253  # RFC 1035, as text
_PLACEHOLDER = re.compile(r"^\{\w+\}(?=\.)")
_VARIABLE = re.compile(r"\$[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class Host:
    """A lower-case ASCII name (``.example.org`` includes subdomains) or a network, at one port or all."""

    name: str = ""
    network: Network | None = None
    port: int | None = None

    def __post_init__(self) -> None:
        if isinstance(self.network, ipaddress.IPv6Network):
            raise ValueError(f"{self.network} is IPv6, and an environment's way out has IPv4 alone")

    @property
    def is_domain(self) -> bool:
        return self.name.startswith(".")

    def __str__(self) -> str:
        if self.network is None:
            shown = self.name
        elif self.network.prefixlen == self.network.max_prefixlen:
            shown = str(self.network.network_address)
        else:
            shown = str(self.network)
        return shown if self.port is None else f"{shown}:{self.port}"


def parse_host(text: str) -> Host:
    """Parse a host; the message of a ValueError says what is wrong."""
    text = text.strip()
    if "/" in text:
        return Host(network=_network(text))
    try:
        network = _address(text.removeprefix("[").removesuffix("]"))
    except ValueError:
        host, colon, number = text.rpartition(":")
    else:
        return Host(network=network)
    if not colon:
        return Host(name=_name(text))
    port = int(number) if number.isdecimal() and len(number) <= 5 else 0
    if not 1 <= port <= 65535:
        raise ValueError(f"{text!r} has no port from 1 to 65535 after its colon")
    return _host(host.removeprefix("[").removesuffix("]"), port)


def hosts_in(value: str) -> tuple[Host, ...]:
    """The hosts in a variable's value, separated by commas: hosts, or URLs, whose host and port are used.

    ``https://{language}.wikipedia.org`` names the domain. No error shows the value: it may be a key in the wrong line.
    """
    return tuple(_host_or_url(part.strip()) for part in value.split(",") if part.strip())


def is_variable(text: str) -> bool:
    return bool(_VARIABLE.fullmatch(text))


def resolve_hosts(entries: tuple[str, ...], variables: Mapping[str, str]) -> tuple[Host, ...]:
    hosts: dict[Host, None] = {}
    for entry in entries:
        if not is_variable(entry):
            hosts[parse_host(entry)] = None
            continue
        try:
            hosts |= dict.fromkeys(hosts_in(variables.get(entry[1:], "")))
        except ValueError as error:
            raise ValueError(f"{entry}: {error}") from None
    return tuple(hosts)


def _host_or_url(text: str) -> Host:
    if "://" not in text:
        try:
            return parse_host(text)
        except ValueError:
            raise ValueError("it holds something that is not a URL, host, address or network") from None
    try:
        url = urlsplit(text)
        port = url.port or _DEFAULT_PORTS.get(url.scheme)
    except ValueError:
        raise ValueError("it holds a URL that cannot be read") from None
    if not url.hostname or port is None:
        raise ValueError("it holds a URL that is not http or https with a host")
    return _host(_PLACEHOLDER.sub("", url.hostname), port)


def _host(name: str, port: int) -> Host:
    try:
        network = _address(name)
    except ValueError:
        return Host(name=_name(name), port=port)
    return Host(network=network, port=port)


def _network(text: str) -> Network:
    try:
        network = ipaddress.ip_network(text)
    except ValueError as error:
        raise ValueError(f"{text!r} is not a network: {error}") from None
    if network.prefixlen == 0:
        raise ValueError(f"{text!r} is every address: say `egress: open` for public ones")
    return network


def _address(text: str) -> Network:
    address = ipaddress.ip_address(text)
    if isinstance(address, ipaddress.IPv6Address):
        address = address.ipv4_mapped or address
    return ipaddress.ip_network(address)


def _name(text: str) -> str:
    subdomains = text.startswith(".")
    try:
        name = text.removeprefix(".").removesuffix(".").encode("idna").decode("ascii").lower()
    except UnicodeError:
        name = ""
    labels = name.split(".")
    # Programs take a name whose last label is a number for an address in another notation: 127.1, 10.0.0.0x1.
    is_number = labels[-1].isdecimal() or labels[-1].startswith("0x")
    if len(name) > _MAX_NAME_LENGTH or is_number or not all(map(_LABEL.fullmatch, labels)):
        raise ValueError(f"{text!r} is not a host name, address or network")
    return f".{name}" if subdomains else name
