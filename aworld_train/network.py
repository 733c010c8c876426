"""Which servers are near, which proxy leads to the others, and which HTTP client reaches them.

Asynchronous requests are made with aiohttp (0.23 ms of CPU with aiohttp 3.14, 0.78 ms with httpx 0.28), synchronous
ones with httpx, whose new client takes 16 ms for its TLS context.

``HTTP_PROXY`` and the like are for the internet: a proxy often cannot reach a private address. An asynchronous client
therefore gets its proxy from `proxy_for`; a synchronous one ignores these variables for a URL that `is_near`.
"""

import ipaddress
import re
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cache
from math import isfinite
from urllib.request import getproxies, proxy_bypass

import httpx

from aworld_train.errors import UsageError

_DEFAULT_PORTS = {"http": 80, "https": 443}
_USER_OF_A_URL = re.compile(r"(?<=://)[^/\s'\"]+@")


def is_near(url: str) -> bool:
    """Whether the host of ``url`` is ``localhost`` or a private address, without resolving names."""
    host = httpx.URL(url).host
    try:
        return ipaddress.ip_address(host).is_private
    except ValueError:
        return host == "localhost"


@cache
def proxy_for(url: str) -> str | None:
    """The URL of the HTTP proxy for ``url``; None for a near server, and where the environment names no proxy.

    ``NO_PROXY`` lists names with all names below them, addresses, and networks as 192.0.2.0/24; a name or an IPv4
    address may have a port. The variables are read once per URL, which takes 0.1 ms.
    """
    if is_near(url):
        return None
    target = httpx.URL(url)
    proxies = getproxies()
    proxy = proxies.get(target.scheme) or proxies.get("all")
    port = target.port or _DEFAULT_PORTS.get(target.scheme)
    if not proxy or proxy_bypass(f"{target.host}:{port}"):
        return None
    if _is_in_network(target.host, proxies.get("no", "")):
        return None
    scheme, separator, _ = proxy.partition("://")
    if not separator:
        return f"http://{proxy}"
    if scheme.lower() not in _DEFAULT_PORTS:
        # Without the proxy's address, which may contain a password.
        raise UsageError(
            f"The environment names a {scheme} proxy for {target.host}, and only HTTP proxies are supported. Set "
            f"{target.scheme.upper()}_PROXY to an HTTP proxy, or add {target.host} to NO_PROXY."
        )
    return proxy


def without_passwords(text: str) -> str:
    """The text without the user names and passwords of the URLs in it: errors of aiohttp quote a proxy's URL."""
    return _USER_OF_A_URL.sub("***@", text)


def _is_in_network(host: str, no_proxy: str) -> bool:
    """Whether an address is in one of the networks of ``NO_PROXY``, which `proxy_bypass` does not read."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    for entry in no_proxy.split(","):
        with suppress(ValueError):
            if address in ipaddress.ip_network(entry.strip().strip("[]"), strict=False):
                return True
    return False


def retry_after_seconds(value: str) -> float:
    """The seconds of a ``Retry-After`` header, a number or a date (RFC 9110, 10.2.3); 0 if it is neither."""
    try:
        seconds = float(value)
    except ValueError:
        try:
            date = parsedate_to_datetime(value)
        except (ValueError, OverflowError):
            return 0.0
        seconds = (date - datetime.now(UTC if date.tzinfo else None)).total_seconds()
    return max(seconds, 0.0) if isfinite(seconds) else 0.0
