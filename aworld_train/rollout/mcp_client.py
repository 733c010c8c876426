"""One session with an MCP server over streamable HTTP: as much of the protocol as calling tools needs, and cheap.

A training step opens hundreds of sessions, so a session is four HTTP requests and no more: two to open it, one per
call, one to close it; all sessions of an event loop share one pool of connections. No stream is held open for what a
server says by itself, which the specification leaves to the client.
https://modelcontextprotocol.io/specification/2025-06-18/basic/transports
"""

import asyncio
import contextlib
import itertools
import json
import ssl
import urllib.request
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any
from urllib.parse import urljoin, urlsplit

import aiohttp
import httpx

from aworld_train.network import is_near

_PROTOCOL = "2025-06-18"
_METHOD_NOT_FOUND = -32601  # from the JSON-RPC 2.0 specification
_ACCEPTED = "application/json, text/event-stream"
_SESSION = "Mcp-Session-Id"
# Shorter than servers keep them: a connection that is closed while it is taken up again would cost a session.
_KEPT_SECONDS = 30.0
_RESUMPTIONS = 3  # of an answer that the server interrupts
_RESUME_SECONDS = 1.0


class ServerFailure(Exception):
    """The server cannot be reached, went away, or did not answer as MCP servers do; the session is of no use any more.

    Attributes:
        status: The HTTP status that it refused a request with, if it did.
    """

    def __init__(self, reason: str, status: int | None = None):
        super().__init__(reason)
        self.status = status


class RequestFailure(Exception):
    """The server answered a request with an error; the session goes on.

    Attributes:
        error: The error as JSON-RPC has it.
        kind: The ``type`` of the failure, where the server is one of ours.
    """

    def __init__(self, error: Any):
        super().__init__(error.get("message") if isinstance(error, dict) else str(error))
        self.error = error if isinstance(error, dict) else {"message": str(error)}
        data = error.get("data") if isinstance(error, dict) else None
        self.kind = data.get("type") if isinstance(data, dict) else None


@dataclass(frozen=True)
class PendingRequest:
    """A request under way.

    Attributes:
        number: What the server knows it by.
        answer: Becomes its result; raises ``RequestFailure`` or ``ServerFailure``.
    """

    number: int
    answer: "asyncio.Task[dict[str, Any]]"


class McpSession:
    """A session, once ``shake_hands`` has opened it; whether it has or not, it has to be closed."""

    def __init__(self, url: str, headers: Mapping[str, str], connect_timeout: float):
        self._url = url
        self._headers = {**headers, "Accept": _ACCEPTED, "Content-Type": "application/json"}
        self._proxy = _proxy(url)
        self._tls = _tls_context() if url.startswith("https:") else True
        self._timeout = aiohttp.ClientTimeout(total=None, sock_connect=connect_timeout)
        self._numbers = itertools.count()
        self._under_way: set[asyncio.Task[dict[str, Any]]] = set()

    async def shake_hands(self) -> None:
        """Open it.

        Raises:
            ServerFailure: It cannot be opened.
        """
        hello = {
            "protocolVersion": _PROTOCOL,
            "capabilities": {},
            "clientInfo": {"name": "aworld-train", "version": "1"},
        }
        try:
            answer = await self._ask(next(self._numbers), "initialize", hello)
        except RequestFailure as failure:
            raise ServerFailure(str(failure)) from failure
        self._headers["MCP-Protocol-Version"] = str(answer.get("protocolVersion", _PROTOCOL))
        await self._tell({"method": "notifications/initialized"})

    def request(self, method: str, params: Mapping[str, Any]) -> PendingRequest:
        """Ask for something. It is under way, whether it is waited for or not, until it is answered or all is over."""
        number = next(self._numbers)
        answer = asyncio.create_task(self._ask(number, method, params))
        self._under_way.add(answer)
        answer.add_done_callback(self._answered)
        return PendingRequest(number, answer)

    async def give_up(self, request: PendingRequest, reason: str) -> None:
        """Tell the server that nobody waits for the answer any more.

        The connection stays: that it is broken off says nothing about the request, says the specification.

        Raises:
            ServerFailure: It cannot be told.
        """
        params = {"requestId": request.number, "reason": reason}
        await self._tell({"method": "notifications/cancelled", "params": params})

    async def close(self) -> None:
        """End it, here and, if the server knows of it, there.

        Raises:
            ServerFailure: The server cannot be told.
        """
        for answer in self._under_way:
            answer.cancel()
        if _SESSION in self._headers:
            async with self._send("DELETE"):
                pass

    def _answered(self, answer: "asyncio.Task[dict[str, Any]]") -> None:
        self._under_way.discard(answer)
        if not answer.cancelled():
            answer.exception()  # marks it as seen: perhaps nobody waits for it any more

    async def _tell(self, message: Mapping[str, Any]) -> None:
        async with self._send("POST", message):
            pass

    async def _ask(self, number: int, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        async with self._send("POST", {"id": number, "method": method, "params": params}) as answer:
            if method == "initialize" and _SESSION in answer.headers:
                self._headers[_SESSION] = answer.headers[_SESSION]
            if answer.content_type == "text/event-stream":
                message = await self._last_of(answer, number)
            else:
                message = _parsed(await answer.read())
        if "error" in message:
            raise RequestFailure(message["error"])
        if not isinstance(result := message.get("result"), dict):
            raise ServerFailure(f"the answer to {method} has no result")
        return result

    async def _last_of(self, stream: aiohttp.ClientResponse, number: int) -> dict[str, Any]:
        """The answer in a stream of events, and in those with which the server goes on where it interrupted it."""
        last = ""
        async for event, data in _events(stream):
            last = event or last
            if data and (message := await self._taken(data, number)) is not None:
                return message
        for _ in range(_RESUMPTIONS if last else 0):
            await asyncio.sleep(_RESUME_SECONDS)
            async with self._send("GET", headers={"Last-Event-ID": last}) as more:
                async for event, data in _events(more):
                    last = event or last
                    if data and (message := await self._taken(data, number)) is not None:
                        return message
        raise ServerFailure("an answer ended before it was complete")

    async def _taken(self, data: bytes, number: int) -> dict[str, Any] | None:
        """The message, if it is the answer; what the server asks of this client meanwhile is answered."""
        message = _parsed(data)
        if "method" not in message:
            return message if message.get("id") == number else None
        if "id" in message:
            # A ping deserves an answer; nothing else was offered.
            error = {"code": _METHOD_NOT_FOUND, "message": f"{message['method']} is not offered"}
            said = {"result": {}} if message["method"] == "ping" else {"error": error}
            await self._tell({"id": message["id"], **said})
        return None

    @asynccontextmanager
    async def _send(
        self,
        method: str,
        message: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        body = None if message is None else json.dumps({"jsonrpc": "2.0", **message}).encode()
        try:
            answer = await self._exchange(method, body, headers)
            if answer.status in (307, 308):
                there = urljoin(self._url, answer.headers.get("Location", ""))
                if _origin(there) == _origin(self._url):  # nobody else is told what the headers say
                    answer.release()
                    self._url = there
                    answer = await self._exchange(method, body, headers)
            async with answer:
                if answer.status >= 300:
                    raise ServerFailure(await _refusal(answer), answer.status)
                yield answer
        except (aiohttp.ClientError, OSError) as error:
            raise ServerFailure(f"{type(error).__name__}: {error}".partition("\n")[0]) from error

    async def _exchange(
        self, method: str, body: bytes | None, headers: Mapping[str, str]
    ) -> aiohttp.ClientResponse:
        http = await _pool()
        return await http.request(
            method,
            self._url,
            data=body,
            headers={**self._headers, **headers},
            proxy=self._proxy,
            ssl=self._tls,
            timeout=self._timeout,
            allow_redirects=False,
        )


def _origin(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.scheme, parts.netloc


async def _refusal(answer: aiohttp.ClientResponse) -> str:
    """What a server says that refuses a request."""
    said = f"HTTP {answer.status} {answer.reason}"
    with contextlib.suppress(ValueError, KeyError, TypeError):
        said += f": {json.loads(await answer.read())['error']['message']}"
    return said


async def _events(stream: aiohttp.ClientResponse) -> AsyncIterator[tuple[str, bytes]]:
    """Id and data of each event in a stream; lines end as all MCP servers end them, with or without CR.

    https://html.spec.whatwg.org/multipage/server-sent-events.html
    """
    pending, event, data = b"", "", []
    parts: list[bytes] = []
    async for chunk in stream.content.iter_any():
        parts.append(chunk)
        if b"\n" not in chunk:
            continue
        *lines, pending = b"".join(parts).split(b"\n")
        parts = [pending]
        for line in lines:
            name, _, value = line.removesuffix(b"\r").partition(b":")
            value = value.removeprefix(b" ")
            if name == b"data":
                data.append(value)
            elif name == b"id":
                event = value.decode(errors="replace")
            elif not line.strip():
                yield event, b"\n".join(data)
                data = []


def _parsed(text: bytes) -> dict[str, Any]:
    try:
        message = json.loads(text)
    except ValueError as error:
        raise ServerFailure(f"what it answered is no JSON: {text[:80]!r}") from error
    if not isinstance(message, dict):
        raise ServerFailure(f"what it answered is no JSON-RPC message: {text[:80]!r}")
    return message


_pools: dict[
    asyncio.AbstractEventLoop, tuple[aiohttp.ClientSession, AsyncGenerator[aiohttp.ClientSession, None]]
]
_pools = {}


async def _pool() -> aiohttp.ClientSession:
    """The connections of this event loop."""
    loop = asyncio.get_running_loop()
    if loop not in _pools:
        opening = _open_pool(loop)
        _pools[loop] = await anext(opening), opening
    return _pools[loop][0]


async def _open_pool(loop: asyncio.AbstractEventLoop) -> AsyncGenerator[aiohttp.ClientSession, None]:
    """An event loop that ends finishes the generators that it finds unfinished: so the connections are closed."""
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEPT_SECONDS)
    async with aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as http:
        try:
            yield http
        finally:
            del _pools[loop]


def _proxy(url: str) -> str | None:
    """What the environment variables say; nothing near is reached through a proxy."""
    parts = httpx.URL(url)
    if is_near(url) or urllib.request.proxy_bypass(parts.host):
        return None
    return urllib.request.getproxies().get(parts.scheme)


@lru_cache(maxsize=1)
def _tls_context() -> ssl.SSLContext:
    return httpx.create_ssl_context()
