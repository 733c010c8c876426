"""Tells which servers are on this machine or its network, so that no proxy is used to reach them.

``HTTP_PROXY`` and the like are set for the internet: a proxy cannot reach a loopback address, and often not a private
one. An HTTP client for a URL that `is_near` therefore ignores these variables (httpx and aiohttp: ``trust_env=False``).
"""

import ipaddress

import httpx


def is_near(url: str) -> bool:
    """Whether the host of ``url`` is ``localhost``, or a loopback or private address.

    Names are not resolved: any other name than ``localhost`` is not near, whatever its address.

    Raises:
        httpx.InvalidURL: ``url`` is not a URL.
    """
    host = httpx.URL(url).host
    try:
        return ipaddress.ip_address(host).is_private
    except ValueError:
        return host == "localhost"
