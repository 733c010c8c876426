"""Which servers are on this machine or its network, and so are never reached through a proxy.

``HTTP_PROXY`` and the like are set for the internet: a proxy cannot reach a loopback address, and often not a private
one. An HTTP client for a URL that `is_near` therefore ignores these variables (httpx and aiohttp: ``trust_env=False``).
"""

import ipaddress

import httpx


def is_near(url: str) -> bool:
    """Whether the host of ``url`` is ``localhost``, or a loopback or private address.

    No name but ``localhost`` is resolved: another name is not near, whatever its address is.

    Raises:
        httpx.InvalidURL: It is no URL.
    """
    host = httpx.URL(url).host
    try:
        return ipaddress.ip_address(host).is_private
    except ValueError:
        return host == "localhost"
