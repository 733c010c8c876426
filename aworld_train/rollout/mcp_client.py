"""One session with an MCP server over streamable HTTP: the part of the protocol that calling tools needs.

A session with one call is four HTTP requests, and all sessions of an event loop share one pool of connections. No
stream is held open for the server's own messages, which the specification leaves to the client.
https://modelcontextprotocol.io/specification/2025-06-18/basic/transports

The MCP SDK's client (mcp 1.30) loses failures: when a server dies during a call, it leaves the call waiting for ever.
It also costs more: 23 ms of CPU to open and close a session against 1.0 ms, and 0.98 ms a call against 0.30 ms
(medians, a local server that answers in JSON).
"""

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from types import MappingProxyType
from typing import Any
from urllib.parse import urljoin, urlsplit

import aiohttp

from aworld_train.network import proxy_for, without_passwords
from aworld_train.rollout.http_client import SessionPerLoop
from aworld_train.rollout.tool_answers import AnswerExceeds, EventReader, parse, read_body
from aworld_train.serving.mcp_messages import (
    EVENTS,
    HELLO,
    PROTOCOL,
    SESSION_HEADER,
    member,
    read_limits,
    reply_to_server,
)

_ACCEPTED = f"application/json, {EVENTS}"
# Shorter than servers keep connections: one that the server closes just as it is reused would cost a session.
_HTTP = SessionPerLoop(keepalive_seconds=30.0)
_MAX_RESUMPTIONS = 3  # of an answer that the server interrupts
_RESUME_SECONDS = 1.0


class ServerFailure(Exception):
    """The server cannot be reached, went away, or broke the protocol; the session cannot be used any more."""

    def __init__(self, reason: str, status: int | None = None):
        super().__init__(reason)
        self.status = status


class RequestFailure(Exception):
    """The server answered a request with an error, whose data may name a ``kind``; the session can still be used."""

    def __init__(self, error: Any):
        super().__init__(error.get("message") if isinstance(error, dict) else str(error))
        self.error = error if isinstance(error, dict) else {"message": str(error)}
        self.kind = member(error, "data", "type")


@dataclass(frozen=True)
class PendingRequest:
    """A request under way; ``answer`` raises ``RequestFailure`` or ``ServerFailure``."""

    number: int
    answer: "asyncio.Task[dict[str, Any]]"


class McpSession:
    """A session, opened by ``initialize``. Close it in any case, also when ``initialize`` failed.

    ``on_wait`` gets what the server says while it opens the session, such as how many wait for a worker.
    """

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str],
        connect_timeout: float,
        on_wait: Callable[[str], None] = lambda _: None,
    ):
        self._url = url
        self._on_wait = on_wait
        self._is_open = False
        self._headers = {**headers, "Accept": _ACCEPTED, "Content-Type": "application/json"}
        self._proxy = proxy_for(url)
        self._timeout = aiohttp.ClientTimeout(total=None, sock_connect=connect_timeout)
        self.tool_timeouts: dict[str, float] = {}
        """The limits of calls that the server told, by tool server; see ``aworld_train.serving.mcp_messages``."""
        self._numbers = itertools.count()
        self._under_way: set[asyncio.Task[dict[str, Any]]] = set()

    @property
    def session_id(self) -> str | None:
        return self._headers.get(SESSION_HEADER)

    async def initialize(self) -> None:
        try:
            result = await self._call(next(self._numbers), "initialize", HELLO)
        except RequestFailure as failure:
            status = HTTPStatus.SERVICE_UNAVAILABLE if failure.kind == "busy" else None
            raise ServerFailure(str(failure), status) from failure
        self._is_open = True
        self.tool_timeouts = read_limits(result.get("capabilities"))
        self._headers["MCP-Protocol-Version"] = str(result.get("protocolVersion", PROTOCOL))
        await self._notify({"method": "notifications/initialized"})

    def request(self, method: str, params: Mapping[str, Any]) -> PendingRequest:
        """Send a request. It runs until it is answered or the session is closed, awaited or not."""
        number = next(self._numbers)
        answer = asyncio.create_task(self._call(number, method, params))
        self._under_way.add(answer)
        answer.add_done_callback(self._forget)
        return PendingRequest(number, answer)

    async def cancel(self, request: PendingRequest, reason: str) -> None:
        """Notify the server that the answer is not needed any more; by the specification, closing says nothing."""
        params = {"requestId": request.number, "reason": reason}
        await self._notify({"method": "notifications/cancelled", "params": params})

    async def close(self) -> None:
        """Cancel the requests under way and end the session on the server."""
        for task in self._under_way:
            task.cancel()
        if SESSION_HEADER in self._headers:
            async with self._send("DELETE"):
                pass

    def _forget(self, task: "asyncio.Task[dict[str, Any]]") -> None:
        self._under_way.discard(task)
        if not task.cancelled():
            task.exception()  # retrieved, or asyncio would log it when nobody awaits the task

    async def _notify(self, message: Mapping[str, Any]) -> None:
        async with self._send("POST", message):
            pass

    async def _call(self, number: int, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        try:
            async with self._send("POST", {"id": number, "method": method, "params": params}) as response:
                if method == "initialize" and SESSION_HEADER in response.headers:
                    self._headers[SESSION_HEADER] = response.headers[SESSION_HEADER]
                if response.content_type == EVENTS:
                    message = await self._read_answer(response, number)
                else:
                    message = _parsed(await read_body(response))
        except AnswerExceeds as exceeds:
            raise RequestFailure(str(exceeds)) from exceeds
        if message.get("error") is not None:
            raise RequestFailure(message["error"])
        if "result" not in message:
            raise RequestFailure(f"the answer to {method} has no result")
        result = message["result"]
        return result if isinstance(result, dict) else {"content": result}

    async def _read_answer(self, response: aiohttp.ClientResponse, number: int) -> dict[str, Any]:
        reader = EventReader()
        if (message := await self._read_stream(response, reader, number)) is not None:
            return message
        for _ in range(_MAX_RESUMPTIONS if reader.last_id else 0):
            await asyncio.sleep(_RESUME_SECONDS)
            async with self._send("GET", headers={"Last-Event-ID": reader.last_id}) as resumed:
                reader = EventReader(reader.last_id)
                if (message := await self._read_stream(resumed, reader, number)) is not None:
                    return message
        raise ServerFailure("an answer ended before it was complete")

    async def _read_stream(
        self, response: aiohttp.ClientResponse, reader: EventReader, number: int
    ) -> dict[str, Any] | None:
        async for chunk in response.content.iter_any():
            for data in reader.feed(chunk):
                if data and (message := await self._take_message(data, number)) is not None:
                    return message
        return None

    async def _take_message(self, data: bytes, number: int) -> dict[str, Any] | None:
        """Return the message if it is the answer; reply to it if it is a request of the server's."""
        message = _parsed(data)
        if "method" not in message:
            return message if str(message.get("id")) == str(number) else None
        if message["method"] == "notifications/message" and not self._is_open:
            self._on_wait(str((message.get("params") or {}).get("data")))
        if "id" in message:
            await self._notify(reply_to_server(message))
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
            response = await self._exchange(method, body, headers)
            if response.status in (307, 308):
                location = urljoin(self._url, response.headers.get("Location", ""))
                if _origin(location) == _origin(self._url):  # the headers hold credentials
                    response.release()
                    self._url = location
                    response = await self._exchange(method, body, headers)
            async with response:
                if response.status >= 300:
                    raise ServerFailure(await _refusal(response), response.status)
                yield response
        except (aiohttp.ClientError, OSError) as error:
            reason = f"{type(error).__name__}: {error}".partition("\n")[0]
            raise ServerFailure(without_passwords(reason)) from error

    async def _exchange(
        self, method: str, body: bytes | None, headers: Mapping[str, str]
    ) -> aiohttp.ClientResponse:
        http = await _HTTP.get()
        return await http.request(
            method,
            self._url,
            data=body,
            headers={**self._headers, **headers},
            proxy=self._proxy,
            timeout=self._timeout,
            allow_redirects=False,
        )


def _origin(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.scheme, parts.netloc


async def _refusal(response: aiohttp.ClientResponse) -> str:
    reason = f"HTTP {response.status} {response.reason}"
    with contextlib.suppress(AnswerExceeds, ValueError, KeyError, TypeError):
        reason += f": {parse(await read_body(response))['error']['message']}"
    return reason


def _parsed(text: bytes) -> dict[str, Any]:
    try:
        message = parse(text)
    except ValueError as error:
        raise ServerFailure(f"its answer is not valid JSON: {text[:80]!r}") from error
    if not isinstance(message, dict):
        raise ServerFailure(f"its answer is not a JSON-RPC message: {text[:80]!r}")
    return message
