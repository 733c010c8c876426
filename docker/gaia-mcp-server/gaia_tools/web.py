"""Pages and files from the web: the one way out for tools that are given an address by a model.

Only http and https, and only to public addresses: names are resolved here, every address is checked, and the connection
goes to what was checked, also after each redirect. ``TOOLS_ALLOWED_HOSTS`` (``wiki.internal,127.0.0.1:8080``) names
private hosts that may be reached all the same. Everything has a limit: redirects, seconds, bytes (after decompression).
"""

import asyncio
import ipaddress
import os
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import ThreadedResolver
from mcp.server.fastmcp.exceptions import ToolError
from yarl import URL

SECONDS = 30.0
MOST_BYTES = 20 << 20
_MOST_REDIRECTS = 10
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_CHUNK = 1 << 16
USER_AGENT = (
    "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0 Safari/537.36"
)


@dataclass(frozen=True)
class Fetched:
    """What an address answered.

    Attributes:
        url: Where it came from, after redirects.
        status: HTTP status.
        headers: Of the answer, names in lower case.
        body: Decompressed.
        complete: Whether ``body`` is all of it.
    """

    url: str
    status: int
    headers: Mapping[str, str]
    body: bytes
    complete: bool = True

    @property
    def content_type(self) -> str:
        """Its media type, in lower case and without parameters."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()


async def fetch(
    url: str,
    *,
    params: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
    seconds: float = SECONDS,
    most_bytes: int = MOST_BYTES,
    cut: bool = False,
) -> Fetched:
    """Get what is at an address, whatever its status.

    Args:
        params: For the query, beside what is in ``url``.
        headers: Beside the ordinary ones; not sent on to another host.
        cut: Whether to return the beginning of a body that is too long; otherwise that is an error.

    Raises:
        ToolError: The address is not allowed, cannot be reached, or answers too much, too late or in circles.
    """
    body = bytearray()
    async with opened(url, params=params, headers=headers, seconds=seconds) as response:
        async for chunk in response.content.iter_chunked(_CHUNK):
            body += chunk
            if len(body) > most_bytes:
                if cut:
                    break
                raise ToolError(f"{url} has more than {most_bytes >> 20} MB; no more are read.")
        return Fetched(
            str(response.url),
            response.status,
            {name.lower(): value for name, value in response.headers.items()},
            bytes(body[:most_bytes]),
            len(body) <= most_bytes,
        )


@asynccontextmanager
async def opened(
    url: str,
    *,
    params: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
    seconds: float = SECONDS,
) -> AsyncIterator[aiohttp.ClientResponse]:
    """The answer of an address, after redirects, its body not read yet; all of it within ``seconds``.

    Raises:
        ToolError: As `fetch`, also while the body is read inside the block.
    """
    connector = aiohttp.TCPConnector(resolver=_PublicOnly(), use_dns_cache=False, force_close=True)
    current = _checked(url).update_query(params or {})
    sent = {"User-Agent": USER_AGENT, "Accept-Language": "en", **(headers or {})}
    try:
        async with (
            asyncio.timeout(seconds),
            aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=None)) as http,
        ):
            for _ in range(_MOST_REDIRECTS + 1):
                async with http.get(current, headers=sent, allow_redirects=False) as response:
                    target = response.headers.get("Location")
                    if response.status not in _REDIRECTS or not target:
                        yield response
                        return
                    before, current = current, _checked(str(current.join(URL(target))))
                    if current.origin() != before.origin():
                        sent = {name: value for name, value in sent.items() if name not in (headers or {})}
            raise ToolError(f"{url} redirects more than {_MOST_REDIRECTS} times.")
    except TimeoutError:
        raise ToolError(f"{url} did not answer within {seconds:g} seconds.") from None
    except aiohttp.ClientError as error:
        if isinstance(error, aiohttp.ClientConnectorError) and isinstance(error.os_error, _Refused):
            raise ToolError(str(error.os_error)) from error
        raise ToolError(f"{current} cannot be reached: {str(error) or type(error).__name__}.") from error
    except (ValueError, UnicodeError) as error:
        raise ToolError(f"{current} cannot be used: {error}.") from error


class _Refused(OSError):
    """An address that tools may not reach."""


def _checked(url: str) -> URL:
    """The address, if it is one that may be asked; a host that is a number is checked here, a name when resolved."""
    try:
        parsed = URL(url.strip())
        host = parsed.host
    except ValueError as error:
        raise ToolError(f"{url} is no address: {error}.") from error
    if parsed.scheme not in ("http", "https") or not host:
        raise ToolError(f"{url} is not an http or https address with a host.")
    if parsed.user or parsed.password:
        raise ToolError(f"{parsed.with_user(None)} was given with a user's name or password: leave them out.")
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return parsed
    if not may_reach(host, host, parsed.port or 0):
        raise ToolError(str(_refusal(host, host)))
    return parsed


def may_reach(host: str, address: str, port: int) -> bool:
    """Whether tools may connect to ``address`` for ``host``: it is public, or the host is on the allow-list."""
    allowed = {one.strip().lower() for one in os.environ.get("TOOLS_ALLOWED_HOSTS", "").split(",")} - {""}
    name = host.lower().rstrip(".")
    if name in allowed or f"{name}:{port}" in allowed:
        return True
    return _is_public(ipaddress.ip_address(address.partition("%")[0]))


def _is_public(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour or (address.teredo or (None, None))[1]
        if address in ipaddress.ip_network("64:ff9b::/96"):  # NAT64, RFC 6052
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return _is_public(inner)
    return address.is_global and not address.is_multicast and not address.is_reserved


def _refusal(host: str, address: str) -> _Refused:
    what = host if host == address else f"{host} ({address})"
    return _Refused(
        f"{what} is not a public address, and tools may not reach it; TOOLS_ALLOWED_HOSTS can allow it."
    )


class _PublicOnly(AbstractResolver):
    """Resolves names, and refuses those that lead to addresses that are not public."""

    def __init__(self) -> None:
        self._resolver = ThreadedResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        found = await self._resolver.resolve(host, port, family)
        for one in found:
            if not may_reach(host, one["host"], port):
                raise _refusal(host, one["host"])
        return found

    async def close(self) -> None:
        await self._resolver.close()


def decode_json(fetched: Fetched, what: str) -> Any:
    """The body as JSON.

    Raises:
        ToolError: The status is not 200, or the body is no JSON; ``what`` names the service.
    """
    import json

    if fetched.status != 200:
        raise ToolError(f"{what} answered {fetched.status}: {fetched.body[:300].decode(errors='replace')}")
    try:
        return json.loads(fetched.body)
    except ValueError as error:
        raise ToolError(f"{what} gave an answer that is no JSON: {error}.") from error
