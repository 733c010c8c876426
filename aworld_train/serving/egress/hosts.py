"""Hosts as a manifest or a person names them: ``pypi.org``, ``.wikipedia.org``, ``10.0.0.5:8080``, ``10.1.0.0/16``.

A name is compared with the name in a request, an address or network with an address that stands there itself: a name
that resolves to a named address is not named by that.
"""

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_DEFAULT_PORTS = {"http": 80, "https": 443}
_MAX_NAME = 253  # RFC 1035, as text
_MAPPED = ipaddress.IPv6Network("::ffff:0:0/96")  # RFC 4291: IPv4 addresses, as which Squid takes them
_PLACEHOLDER = re.compile(r"^\{\w+\}(?=\.)")
_VARIABLE = re.compile(r"\$[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class Host:
    """A host, or several, that may be reached.

    Attributes:
        name: A host name in lower case and ASCII, with a dot in front if its subdomains are meant too; or empty.
        network: Addresses, where there is no name.
        port: The one port that may be reached; None: all.
    """

    name: str = ""
    network: Network | None = None
    port: int | None = None

    @property
    def is_domain(self) -> bool:
        """Whether subdomains are meant too."""
        return self.name.startswith(".")

    def __str__(self) -> str:
        if self.network is None:
            shown = self.name
        elif self.network.prefixlen == self.network.max_prefixlen:
            address = str(self.network.network_address)
            shown = f"[{address}]" if ":" in address and self.port else address
        else:
            shown = str(self.network)
        return shown if self.port is None else f"{shown}:{self.port}"


def parse_host(text: str) -> Host:
    """The host that ``text`` names.

    Raises:
        ValueError: It is no host, address or network; the message says what is wrong.
    """
    text = text.strip()
    if "/" in text:
        return Host(network=_network(text))
    try:
        return Host(network=_single(text.removeprefix("[").removesuffix("]")))
    except ValueError:
        host, colon, number = text.rpartition(":")
    if not colon:
        return Host(name=_name(text))
    port = int(number) if number.isdecimal() and len(number) <= 5 else 0
    if not 1 <= port <= 65535:
        raise ValueError(f"{text!r} has no port from 1 to 65535 after its colon")
    try:
        return Host(network=_single(host.removeprefix("[").removesuffix("]")), port=port)
    except ValueError:
        return Host(name=_name(host), port=port)


def hosts_in(value: str) -> tuple[Host, ...]:
    """The hosts in a variable's value: URLs, of which host and port count, or hosts, separated by commas.

    A URL whose host begins with a placeholder, ``https://{language}.wikipedia.org``, names the domain behind it.

    Raises:
        ValueError: One is neither.
    """
    return tuple(_host_or_url(part.strip()) for part in value.split(",") if part.strip())


def is_variable(text: str) -> bool:
    """Whether it is ``$NAME``: what the variable of that name holds."""
    return bool(_VARIABLE.fullmatch(text))


def resolve_hosts(entries: tuple[str, ...], variables: Mapping[str, str]) -> tuple[Host, ...]:
    """All hosts that entries name, each once; a variable that is not set names none.

    Raises:
        ValueError: One is no host; the message names it.
    """
    found: dict[Host, None] = {}
    for entry in entries:
        if not is_variable(entry):
            found[parse_host(entry)] = None
            continue
        try:
            found |= dict.fromkeys(hosts_in(variables.get(entry[1:], "")))
        except ValueError as error:
            raise ValueError(f"{entry}: {error}") from None
    return tuple(found)


def _host_or_url(text: str) -> Host:
    if "://" not in text:
        return parse_host(text)
    try:
        url = urlsplit(text)
        port = url.port or _DEFAULT_PORTS.get(url.scheme)
    except ValueError:
        raise ValueError("it holds a URL that cannot be read") from None
    if not url.hostname or port is None:
        raise ValueError("it holds a URL that is not http or https with a host")
    host = _PLACEHOLDER.sub("", url.hostname)
    try:
        return Host(network=_single(host), port=port)
    except ValueError:
        return Host(name=_name(host), port=port)


def _network(text: str) -> Network:
    try:
        network = ipaddress.ip_network(text)
    except ValueError as error:
        raise ValueError(f"{text!r} is no network: {error}") from None
    if network.prefixlen == 0:
        raise ValueError(f"{text!r} is every address: say `egress: open` for public ones")
    if isinstance(network, ipaddress.IPv6Network) and network.overlaps(_MAPPED):
        raise ValueError(f"{text!r} holds IPv4 addresses: write them as an IPv4 network")
    return network


def _single(text: str) -> Network:
    address = ipaddress.ip_address(text)
    if isinstance(address, ipaddress.IPv6Address):
        if address.scope_id is not None:
            raise ValueError(f"{text!r} has a zone, which means nothing in another container")
        address = address.ipv4_mapped or address
    return ipaddress.ip_network(address)


def _name(text: str) -> str:
    subdomains = text.startswith(".")
    try:
        name = text.removeprefix(".").removesuffix(".").encode("idna").decode("ascii").lower()
    except UnicodeError:
        name = ""
    labels = name.split(".")
    # As programs read addresses, a number at the end makes a name an address in another notation: 127.1, 10.0.0.0x1.
    is_number = labels[-1].isdecimal() or labels[-1].startswith("0x")
    if len(name) > _MAX_NAME or is_number or not all(map(_LABEL.fullmatch, labels)):
        raise ValueError(f"{text!r} is no host name, address or network")
    return f".{name}" if subdomains else name
