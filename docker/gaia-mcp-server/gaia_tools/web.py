"""Pages and files from the web: the one way out for tools.

`fetch` and `opened` take an address that a model gives, and reach only what `addresses` allows, also after redirects.
`api` asks a service of the operator's. Redirects, tries, seconds and bytes (after decompression) have limits.
"""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote

import aiohttp
from mcp.server.fastmcp.exceptions import ToolError
from yarl import URL

from gaia_tools import upstream
from gaia_tools.addresses import Refused, Service, checked, may_reach, refusal_in, resolver, service

__all__ = [
    "MAX_BYTES",
    "SECONDS",
    "Fetched",
    "Refused",
    "api",
    "decode_json",
    "fetch",
    "may_reach",
    "opened",
]

SECONDS = 30.0
MAX_BYTES = 20 << 20
_MAX_REDIRECTS = 10
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_AGAIN = frozenset({408, 429, 500, 502, 503, 504})
_TRIES = 4
_FIRST_PAUSE = 0.5
_CHUNK = 1 << 16
_MAX_LINE = 1 << 16  # aiohttp's 8 kB are too few for the headers of some sites
USER_AGENT = (
    "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0 Safari/537.36"
)
# What may be sent to any host; other headers, keys among them, stay with the host they are for.
_ORDINARY = {
    "User-Agent": USER_AGENT,
    "Accept": "text/html,application/xhtml+xml,*/*;q=0.8",
    "Accept-Language": "en",
    "Accept-Encoding": "gzip, deflate",
}


@dataclass(frozen=True)
class Fetched:
    """What an address answered after redirects; ``complete`` if ``body`` is all of it."""

    url: str
    status: int
    headers: Mapping[str, str]
    body: bytes
    complete: bool = True

    @property
    def content_type(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()


async def fetch(
    url: str,
    *,
    params: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
    seconds: float = SECONDS,
    most_bytes: int = MAX_BYTES,
    cut: bool = False,
    tries: int = 1,
) -> Fetched:
    """Get what is at an address, whatever its status; ``headers`` beside the ordinary ones are not sent on to another
    host.

    A body that is too long is an error unless it may be ``cut``. A busy host is asked ``tries`` times within
    ``seconds``.
    """
    async with opened(url, params=params, headers=headers, seconds=seconds, tries=tries) as response:
        return await _read(response, url, most_bytes, cut)


async def api(
    base_url: str,
    path: str,
    what: str,
    *,
    params: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
    body: Mapping[str, Any] | None = None,
    seconds: float = SECONDS,
    most_bytes: int = MAX_BYTES,
    secret: str = "",
) -> Fetched:
    """What a service at the operator's ``base_url`` answers, whatever its status; asked again where it is busy or
    fails.

    A ``body`` is sent as JSON, with POST. ``secret`` is in no error, nor in the body of an answer that is one.
    """
    url = base_url.rstrip("/") + path
    try:
        async with opened(
            url,
            params=params,
            headers=headers,
            body=body,
            seconds=seconds,
            tries=_TRIES,
            trusted=service(base_url),
        ) as response:
            fetched = await _read(response, url, most_bytes)
    except ToolError as error:
        raise ToolError(f"{what}: {_without(secret, str(error))}") from None
    if fetched.status >= 400:
        return replace(fetched, body=_without(secret, fetched.body.decode(errors="replace")).encode())
    return fetched


@asynccontextmanager
async def opened(
    url: str,
    *,
    params: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
    body: Mapping[str, Any] | None = None,
    seconds: float = SECONDS,
    tries: int = 1,
    trusted: Service | None = None,
) -> AsyncIterator[aiohttp.ClientResponse]:
    """The answer of an address, after redirects, its body not read yet; all of it within ``seconds``.

    What the operator configured is ``trusted``: it may be private.
    """
    connector = aiohttp.TCPConnector(resolver=resolver(trusted), use_dns_cache=False, force_close=True)
    try:
        async with (
            asyncio.timeout(seconds) as limit,
            aiohttp.ClientSession(
                connector=connector,
                timeout=aiohttp.ClientTimeout(total=None),
                max_line_size=_MAX_LINE,
                max_field_size=_MAX_LINE,
            ) as http,
        ):
            request = _Request(url, params or {}, headers or {}, body, trusted)
            async with await _answer(http, request, tries, limit.when() or 0.0) as response:
                yield response
    except TimeoutError:
        raise ToolError(f"{url} did not answer within {seconds:g} seconds.") from None
    except aiohttp.ClientError as error:
        raise _failure(url, error) from error


@dataclass(frozen=True)
class _Request:
    url: str
    params: Mapping[str, str]
    headers: Mapping[str, str]
    body: Mapping[str, Any] | None
    trusted: Service | None


async def _answer(
    http: aiohttp.ClientSession, request: _Request, tries: int, deadline: float
) -> aiohttp.ClientResponse:
    for left in reversed(range(tries)):
        pause = _FIRST_PAUSE * 2 ** (tries - 1 - left) * random.uniform(0.75, 1.25)
        try:
            response = await _follow(http, request)
        except aiohttp.ClientError as error:
            refused = isinstance(error, aiohttp.ClientConnectorError) and refusal_in(error.os_error)
            if refused or not left or _now() + pause > deadline:
                raise
        else:
            pause = max(pause, _retry_after(response))
            if response.status not in _AGAIN or not left or _now() + pause > deadline:
                return response
            response.close()
        await asyncio.sleep(pause)
    raise AssertionError("the last try returns or raises")


async def _follow(http: aiohttp.ClientSession, request: _Request) -> aiohttp.ClientResponse:
    sent, body = {**_ORDINARY, **request.headers}, request.body
    current = checked(request.url, request.trusted).update_query(request.params)
    for _ in range(_MAX_REDIRECTS + 1):
        try:
            response = await upstream.request(
                http,
                "GET" if body is None else "POST",
                current,
                headers=sent,
                json=body,
                allow_redirects=False,
            )
        except (ValueError, UnicodeError) as error:
            raise ToolError(f"{request.url} cannot be used: {error}.") from error
        target = response.headers.get("Location")
        if response.status not in _REDIRECTS or not target:
            return response
        response.close()
        if response.status < 307:
            body = None
        try:
            to = str(current.join(URL(target)))
        except ValueError as error:
            raise ToolError(f"{request.url} redirects to what is not an address: {error}.") from error
        before, current = current, checked(to, request.trusted)
        if current.origin() != before.origin():
            sent = {name: value for name, value in sent.items() if name in _ORDINARY}
    raise ToolError(f"{request.url} redirects more than {_MAX_REDIRECTS} times.")


def _retry_after(response: aiohttp.ClientResponse) -> float:
    """Seconds that the host asks to wait for; a date there is taken for none."""
    value = response.headers.get("Retry-After", "")
    return float(value) if value.isdecimal() else 0.0


def _now() -> float:
    return asyncio.get_running_loop().time()


def _failure(url: str, error: aiohttp.ClientError) -> ToolError:
    if isinstance(error, aiohttp.ClientConnectorError) and (refused := refusal_in(error.os_error)):
        return refused
    return ToolError(f"{url} cannot be reached: {str(error) or type(error).__name__}.")


async def _read(response: aiohttp.ClientResponse, url: str, most_bytes: int, cut: bool = False) -> Fetched:
    body = bytearray()
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


def _without(secret: str, text: str) -> str:
    # As it is, and as it is written in a query.
    forms = {secret, quote(secret, safe=""), URL.build(query={"": secret}).raw_query_string[1:]}
    for form in forms - {""}:
        text = text.replace(form, "***")
    return text


def decode_json(fetched: Fetched, what: str) -> Any:
    if fetched.status == 429:
        raise ToolError(f"{what} says that it is asked too often; wait a minute, then ask again.")
    if fetched.status != 200:
        raise ToolError(f"{what} answered {fetched.status}: {fetched.body[:300].decode(errors='replace')}")
    try:
        return json.loads(fetched.body)
    except ValueError as error:
        raise ToolError(f"{what} gave an answer that is not valid JSON: {error}.") from error
