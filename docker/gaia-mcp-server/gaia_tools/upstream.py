"""The proxy that tools go through where ``HTTPS_PROXY`` names one: the only way out of a container.

It resolves names, decides what may be reached, and marks answers of its own with ``X-Squid-Error``.
"""

import os
from collections.abc import Mapping
from typing import Any

import aiohttp
from mcp.server.fastmcp.exceptions import ToolError
from yarl import URL

from gaia_tools.addresses import Refused

VARIABLES = tuple(
    spelt for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY") for spelt in (name, name.lower())
)
"""Variables that name the proxy, with this server's password for it."""
HEADER = "X-Squid-Error"
"""Of an answer that is the proxy's own: its name for what went wrong."""
_REASONS = {
    "ERR_DNS_FAIL": "its name does not lead to an address",
    "ERR_NO_EGRESS": "the way out of this environment does not answer",
    "ERR_CONNECT_FAIL": "nothing answers there",
}


class Unreachable(aiohttp.ClientError):
    """A host that the proxy does not reach."""


def proxy(host: str) -> URL | None:
    """The proxy to a host, with name and password; None where the host is to be connected to directly.

    That are the hosts in ``NO_PROXY``: the loopback of the container, where a session may serve something to itself.
    """
    named = os.environ.get("HTTPS_PROXY") or os.environ.get("https_proxy")
    direct = os.environ.get("NO_PROXY") or os.environ.get("no_proxy") or ""
    if not named or host.lower() in (one.strip().lower() for one in direct.split(",")):
        return None
    return URL(named)


async def request(
    http: aiohttp.ClientSession, method: str, url: URL, **options: Any
) -> aiohttp.ClientResponse:
    through = proxy(url.raw_host or "")
    try:
        response = await http.request(method, url, proxy=through, **options)
    except aiohttp.ClientHttpProxyError as error:
        raise failure(url.raw_host or "", error.status, error.headers or {}) from None
    except aiohttp.ClientProxyConnectionError:
        raise Unreachable(_REASONS["ERR_NO_EGRESS"]) from None
    if through is not None and HEADER in response.headers:
        response.close()
        raise failure(url.raw_host or "", response.status, response.headers)
    return response


def failure(host: str, status: int, headers: Mapping[str, str]) -> ToolError | Unreachable:
    if status == 403:
        return Refused(
            f"{host} is not a public address, or not allowed by this environment's egress, and tools may not reach it; "
            "egress_hosts can allow it."
        )
    if status == 407:
        return ToolError(
            f"{host} cannot be reached: the proxy of this environment does not take this server's password. The "
            "environment has to be started again."
        )
    kind = headers.get(HEADER, "").partition(" ")[0].rpartition(":")[2]
    return Unreachable(_REASONS.get(kind, f"the proxy answers {status} {kind}".rstrip()))
