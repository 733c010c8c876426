"""Which addresses tools may reach: http and https, to public addresses only.

A host that is a number is checked as it stands, a name when it is resolved, and the connection goes to what was
checked. Where an environment has a proxy (`gaia_tools.upstream`), that decides about names. ``TOOLS_ALLOWED_HOSTS``
(``wiki.internal,127.0.0.1:8080``) and the operator's services may be private.
"""

import ipaddress
import os
import re
import socket
from dataclasses import dataclass

from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import ThreadedResolver
from mcp.server.fastmcp.exceptions import ToolError
from yarl import URL

# RFC 4291: global unicast; all other IPv6 addresses are local, reserved, or lead to an IPv4 address.
_GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")
# What https://www.iana.org/assignments/iana-ipv4-special-registry and .../iana-ipv6-special-registry have and Python's
# `is_global` does not, in some of its versions. Also what is globally reachable there (192.0.0.9, 192.0.0.10 among it):
# relays and name servers of networks, which no page is at.
_SPECIAL = tuple(
    map(
        ipaddress.ip_network,
        (
            "192.0.0.0/24",
            "192.31.196.0/24",
            "192.52.193.0/24",
            "192.88.99.0/24",
            "192.175.48.0/24",
            "168.63.129.16/32",  # public by its number, but the host of a machine at Azure
            "2001::/23",
            "2001:db8::/32",
            "2002::/16",
            "2620:4f:8000::/48",
            "3fff::/20",
        ),
    )
)
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")  # RFC 6052
_ISATAP = (0x5EFE, 0x0200_5EFE)  # RFC 5214: what comes before the IPv4 address in the last 64 bits
_HOST = re.compile(r"[a-z0-9._-]+", re.IGNORECASE)
_NUMBER = re.compile(r"\d+|0x[0-9a-f]*", re.IGNORECASE)


class Refused(ToolError):
    """An address that tools may not reach."""


@dataclass(frozen=True)
class Service:
    host: str
    port: int


def service(base_url: str) -> Service:
    url = _parsed(base_url)
    return Service(_host(url), url.port or 0)


def checked(url: str, trusted: Service | None = None) -> URL:
    """The address, if it is one that may be asked. A name is not resolved here: that is what `resolver` is for."""
    parsed = _parsed(url)
    host = _host(parsed)
    try:
        ipaddress.ip_address(_without_scope(host))
    except ValueError:
        if not _HOST.fullmatch(host):
            raise ToolError(f"{host!r} cannot be the name of a host.") from None
        # As browsers see it, such a host is an IPv4 address in another notation: 127.1, 0x7f000001, 2130706433.
        if _NUMBER.fullmatch(host.rpartition(".")[2]):
            raise ToolError(
                f"{host} is not a canonical IPv4 address: write it as four decimal numbers."
            ) from None
        return parsed
    if Service(host, parsed.port or 0) != trusted and not may_reach(host, host, parsed.port or 0):
        raise Refused(refusal(host, host))
    return parsed if host == parsed.raw_host else parsed.with_host(host)


def may_reach(host: str, address: str, port: int) -> bool:
    """Whether tools may connect to ``address`` for ``host``: it is public, or the host is on the allow-list."""
    allowed = {one.strip().lower() for one in os.environ.get("TOOLS_ALLOWED_HOSTS", "").split(",")} - {""}
    name = host.lower().rstrip(".")
    if allowed & {name, f"{name}:{port}", f"[{name}]", f"[{name}]:{port}"}:
        return True
    return _is_public(ipaddress.ip_address(_without_scope(address)))


def resolver(trusted: Service | None = None) -> AbstractResolver:
    return _PublicOnly(trusted)


def refusal_in(error: OSError | None) -> Refused | None:
    return Refused(str(error)) if isinstance(error, _RefusedName) else None


class _RefusedName(OSError):
    """A name that leads to an address that is not public; an OSError, as a resolver's errors have to be."""


class _PublicOnly(AbstractResolver):
    def __init__(self, trusted: Service | None) -> None:
        self._trusted = trusted
        self._resolver = ThreadedResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        found = await self._resolver.resolve(host, port, family)
        if Service(_bare(host), port) != self._trusted:
            for one in found:
                if not may_reach(host, one["host"], port):
                    raise _RefusedName(refusal(host, one["host"]))
        return found

    async def close(self) -> None:
        await self._resolver.close()


def _parsed(url: str) -> URL:
    try:
        parsed = URL(url.strip())
        host = parsed.raw_host
    except ValueError as error:
        raise ToolError(f"{url} is not an address: {error}.") from error
    if parsed.scheme not in ("http", "https") or not host:
        raise ToolError(f"{url} is not an http or https address with a host.")
    if parsed.user or parsed.password:
        raise ToolError(f"{parsed.with_user(None)} was given with a user's name or password: leave them out.")
    return parsed


def _host(url: URL) -> str:
    return _bare(url.raw_host or "")


def _bare(host: str) -> str:
    return host.lower().rstrip(".")


def _without_scope(address: str) -> str:
    return address.partition("%")[0]


def _is_public(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped
        if address in _NAT64 or (int(address) >> 32) & 0xFFFF_FFFF in _ISATAP:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
        if inner is not None:
            return _is_public(inner)
        if address not in _GLOBAL_UNICAST:
            return False
    if any(address in network for network in _SPECIAL):
        return False
    return address.is_global and not address.is_multicast and not address.is_reserved


def refusal(host: str, address: str) -> str:
    what = host if host == address else f"{host} ({address})"
    return f"{what} is not a public address, and tools may not reach it; TOOLS_ALLOWED_HOSTS can allow it."
