"""The HTTP client of rollouts: aiohttp sessions, which belong to one event loop each, and JSON requests with an API
key."""

import asyncio
import json
import ssl
from collections.abc import AsyncGenerator, Mapping
from functools import cache
from typing import Any

import aiohttp
import httpx

from aworld_train.api_keys import bearer, without_key
from aworld_train.errors import UsageError
from aworld_train.network import proxy_for, retry_after_seconds, without_passwords

# Shorter than uvicorn's five seconds: a request on a connection that the server closes at that moment fails.
UVICORN_KEEPALIVE_SECONDS = 4.0
_MAX_QUOTED = 200  # characters of a response in a message
_MAX_BYTES = 1 << 30
_NO_HEADERS: Mapping[str, str] = {}
_NO_LIMIT = aiohttp.ClientTimeout(total=None)


class RequestFailed(Exception):
    """A request has no answer, or one with an error status; the message is one line without the key.

    ``retry_after`` are seconds, 0 if the server asks for none. Without a status, ``may_pass`` says whether the same
    request may succeed later.
    """

    def __init__(
        self,
        message: str,
        status: int | None = None,
        retry_after: float = 0.0,
        text: str = "",
        may_pass: bool = True,
    ):
        super().__init__(message)
        self.status, self.retry_after = status, retry_after
        self.text, self.may_pass = text, may_pass

    @property
    def body(self) -> Any:
        try:
            return json.loads(self.text)
        except (ValueError, RecursionError):
            return None


class SessionPerLoop:
    """An aiohttp session for each event loop; ``keepalive_seconds`` should be shorter than the server's."""

    def __init__(self, keepalive_seconds: float, max_connections: int = 0):
        self._keepalive_seconds = keepalive_seconds
        self._max_connections = max_connections
        self._sessions: dict[
            asyncio.AbstractEventLoop,
            tuple[aiohttp.ClientSession, AsyncGenerator[aiohttp.ClientSession, None]],
        ] = {}

    async def get(self) -> aiohttp.ClientSession:
        loop = asyncio.get_running_loop()
        if loop not in self._sessions:
            for ended in [other for other in self._sessions if other.is_closed()]:
                del self._sessions[ended]
            generator = self._open(loop)
            self._sessions[loop] = await anext(generator), generator
        return self._sessions[loop][0]

    async def _open(self, loop: asyncio.AbstractEventLoop) -> AsyncGenerator[aiohttp.ClientSession, None]:
        """Open a session in a generator: `asyncio.run` finalises generators at the end, which closes the session."""
        connector = aiohttp.TCPConnector(
            limit=self._max_connections, keepalive_timeout=self._keepalive_seconds, ssl=tls_context()
        )
        async with aiohttp.ClientSession(
            connector=connector, timeout=_NO_LIMIT, cookie_jar=aiohttp.DummyCookieJar()
        ) as session:
            try:
                yield session
            finally:
                self._sessions.pop(loop, None)


async def request_json(
    session: aiohttp.ClientSession,
    method: str,
    url: str,
    *,
    key: str | None,
    body: Any = None,
    headers: Mapping[str, str] = _NO_HEADERS,
    time_limits: aiohttp.ClientTimeout = _NO_LIMIT,
    max_bytes: int = _MAX_BYTES,
) -> Any:
    """The JSON that a server answers; redirects are not followed, for the key would go with them.

    Raises ``RequestFailed``, and ``ValueError`` for an answer that is not JSON.
    """
    try:
        async with session.request(
            method,
            url,
            json=body,
            headers={**headers, **bearer(key)},
            proxy=proxy_for(url),
            allow_redirects=False,
            timeout=time_limits,
        ) as response:
            content = await _read(response, max_bytes)
            if not 200 <= response.status < 300:
                text = without_key(key, _text(content))
                raise RequestFailed(
                    f"HTTP {response.status} {text[:_MAX_QUOTED]!r}",
                    response.status,
                    _retry_after(response.headers),
                    text,
                )
    except UsageError as error:
        raise RequestFailed(error.message) from error
    except (aiohttp.ClientError, httpx.InvalidURL, OSError, ValueError) as error:
        # aiohttp has a class for each way not to connect; httpx, which makes synchronous requests, has this one.
        is_unconnected = isinstance(error, aiohttp.ClientConnectorError)
        reason = " ".join(f"{'ConnectError' if is_unconnected else type(error).__name__} {error}".split())
        raise RequestFailed(without_passwords(without_key(key, reason))) from error
    try:
        # Some servers write line breaks into texts, or not in UTF-8.
        return json.loads(_text(content), strict=False)
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error


async def _read(response: aiohttp.ClientResponse, max_bytes: int) -> bytes:
    content = bytearray()
    async for chunk in response.content.iter_any():
        content += chunk
        if len(content) > max_bytes:
            raise RequestFailed(f"it sent more than {max_bytes >> 20} MiB", may_pass=False)
    return bytes(content)


def _text(content: bytes) -> str:
    return content.decode("utf-8-sig", "replace")


def _retry_after(headers: Mapping[str, str]) -> float:
    """The seconds of ``Retry-After``, or the milliseconds of OpenAI's and Azure's own header, which are more exact."""
    try:
        return max(float(headers["retry-after-ms"]) / 1000, 0.0)
    except (KeyError, ValueError):
        return retry_after_seconds(headers.get("Retry-After", ""))


@cache
def tls_context() -> ssl.SSLContext:
    """The one context of a process, with the certificates that httpx trusts, and those of ``SSL_CERT_FILE`` and
    ``SSL_CERT_DIR``.

    To make one takes 15 milliseconds of CPU and stops all episodes of the process meanwhile; httpx makes one for each
    client by default (httpx 0.28). aiohttp's own trusts the system's certificates, which slim images lack.
    """
    return httpx.create_ssl_context()
