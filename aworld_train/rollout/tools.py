"""An episode's tools: one MCP session, opened at the first call and closed with the episode.

The session lives in a task of its own, so that a server that dies ends that task and not the episode's: every call
that waits for it then raises ``EnvironmentLost`` at once. A tool that reports an error, or takes too long, gives an
error *result*: that is something the agent can react to.

A training step opens hundreds of sessions, so a session is four HTTP requests and no more: two to open it, one per
call, one to close it; and all sessions of a process share one pool of connections. What is given up, by a timeout or
because the episode was cancelled, is told to the server. Only the opening of a session is ever tried again, where the
server says that it has no room yet.
"""

import asyncio
import contextlib
import itertools
import json
import logging
import random
import ssl
import time
import urllib.request
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from types import TracebackType
from typing import Any, Self
from weakref import WeakKeyDictionary

import httpx

from aworld_train.env.address import is_near
from aworld_train.rollout.outcome import EnvironmentLost

_CLOSE_SECONDS = 5.0
_SCHEMA_SECONDS = 60.0  # how long a tool list is used before it is asked for again
# What the SDK answers a request with once the session is over.
_SESSION_OVER = ("Session terminated", "Connection closed")
_DEPTH = 100  # of lists and objects inside one another in arguments; the SDK's serializer fails at 255
# A request that is never answered ends with its session: were it given up before, the SDK would end the session too.
_READ_SECONDS = 7 * 24 * 3600.0
_BUSY_SECONDS = (0.5, 1.0, 2.0, 4.0)  # before a session that there was no room for is asked for again
# Shorter than servers keep them: a connection that is closed while it is taken up again would cost a session.
_KEPT_SECONDS = 30.0

# The SDK logs a traceback for every request to a server that is gone; what matters of it is raised here.
logging.getLogger("mcp.client.streamable_http").setLevel(logging.CRITICAL)


@dataclass(frozen=True)
class ToolResult:
    """What a tool answered, as text; ``is_error`` where the tool said so.

    ``whole`` is the result, or the JSON-RPC error, as the server gave it: an object of the SDK or its JSON. It is None
    where the text is not the server's but the client's, who gave up or never asked.
    """

    text: str
    is_error: bool
    whole: Any = field(default=None, repr=False, compare=False)


@dataclass(frozen=True)
class ToolServer:
    """Where the tools are, and how long to wait for them, in seconds."""

    url: str
    headers: Mapping[str, str]
    call_timeout: float = 60.0
    connect_timeout: float = 30.0

    async def schemas(self) -> list[dict[str, Any]]:
        """The tools as OpenAI function schemas, asked for anew once a minute.

        Raises:
            EnvironmentLost: the server cannot be reached.
        """
        return await _schemas_of(self)


class ToolSession:
    """One session with a tool server: ``async with ToolSession(server) as tools: await tools.call(...)``."""

    def __init__(self, server: ToolServer):
        self._server = server
        self._task: asyncio.Task[None] | None = None
        self._ready: asyncio.Future[Any] | None = None
        self._over: asyncio.Future[str | None] | None = (
            None  # why the connection is of no use any more; None: closed
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is None or self._over is None or self._ready is None:
            return
        if not self._over.done():
            self._over.set_result(None)
        # A session that is still being opened would not notice.
        patience = _CLOSE_SECONDS if self._ready.done() else 0
        done, _ = await asyncio.wait({self._task}, timeout=patience)
        if not done:
            self._task.cancel()
            done, _ = await asyncio.wait({self._task}, timeout=_CLOSE_SECONDS)
        if done and not self._task.cancelled():
            self._task.exception()  # marks it as seen: whoever it concerned has been told

    async def call(self, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Call a tool.

        Raises:
            EnvironmentLost: the server cannot be reached or went away during the call.
        """
        from anyio import BrokenResourceError, ClosedResourceError
        from mcp import McpError
        from mcp.types import CallToolRequest, CallToolRequestParams, CallToolResult, ClientRequest

        if reason := _unsendable(arguments):
            return ToolResult(f"Error: the arguments of {name} {reason}", True)
        session = await self._session()
        params = CallToolRequestParams(name=name, arguments=dict(arguments))
        # Not `session.call_tool`: it asks for the tool list in every session, to check what nobody reads here.
        request = ClientRequest(CallToolRequest(method="tools/call", params=params))
        asking = _Numbered(session, partial(session.send_request, request, CallToolResult))
        try:
            result = await self._unless_lost(asking(), self._server.call_timeout, f"tool {name}")
        except asyncio.CancelledError:
            await asking.give_up("the episode was cancelled")
            raise
        except TimeoutError:
            await asking.give_up("it took too long")
            return ToolResult(f"Error: no answer within {self._server.call_timeout:g} seconds", True)
        except McpError as error:
            if error.error.message in _SESSION_OVER or _kind(error.error.data) == "worker_lost":
                raise EnvironmentLost(
                    f"{self._server.url}: {error.error.message} during tool {name}"
                ) from error
            return ToolResult(f"Error: {error.error.message}", True, error.error)
        except (BrokenResourceError, ClosedResourceError) as error:
            raise EnvironmentLost(f"{self._server.url}: the session was over before tool {name}") from error
        except ValueError as error:
            raise EnvironmentLost(
                f"{self._server.url}: what tool {name} answered is no tool result"
            ) from error
        return ToolResult(_text_of(result), bool(result.isError), result)

    async def list_tools(self) -> list[dict[str, Any]]:
        """The tools of this session as OpenAI function schemas."""
        session = await self._session()
        try:
            listed = await self._unless_lost(
                session.list_tools(), self._server.connect_timeout, "the tool list"
            )
        except TimeoutError as error:
            raise EnvironmentLost(f"{self._server.url} did not list its tools in time") from error
        return [
            {
                "type": "function",
                "function": {"name": t.name, "description": t.description or "", "parameters": t.inputSchema},
            }
            for t in listed.tools
        ]

    async def _session(self) -> Any:
        """The open session, opening it if this is the first use."""
        began = time.monotonic()
        for attempt in itertools.count():
            remaining = self._server.connect_timeout - (time.monotonic() - began)
            if self._ready is None:
                self._ready = asyncio.get_running_loop().create_future()
                self._over = asyncio.get_running_loop().create_future()
                self._task = asyncio.create_task(self._serve(self._ready, self._over))
            try:
                return await asyncio.wait_for(asyncio.shield(self._ready), remaining)
            except TimeoutError as error:
                raise EnvironmentLost(
                    f"{self._server.url} did not open a session within {self._server.connect_timeout:g} seconds"
                ) from error
            except EnvironmentLost as lost:
                pause = _BUSY_SECONDS[min(attempt, len(_BUSY_SECONDS) - 1)] * random.uniform(0.5, 1.5)
                if not _is_busy(lost.__cause__) or pause >= remaining:
                    raise
                self._ready = None
                await asyncio.sleep(pause)
        raise AssertionError("unreachable")

    async def _serve(self, ready: "asyncio.Future[Any]", over: "asyncio.Future[str | None]") -> None:
        """Hold the connection until the episode is over; a failure ends it with the reason in ``ready`` or the task."""
        from mcp import ClientSession
        from mcp.client.streamable_http import streamablehttp_client

        try:
            async with (
                streamablehttp_client(
                    self._server.url,
                    headers=dict(self._server.headers),
                    timeout=self._server.connect_timeout,
                    sse_read_timeout=_READ_SECONDS,
                    httpx_client_factory=partial(_SessionClient, over, _connections(self._server.url)),
                ) as (read, write, _),
                ClientSession(read, write) as session,
            ):
                await session.initialize()
                ready.set_result(session)
                if reason := await over:
                    raise ConnectionError(reason)
        except BaseException as error:
            lost = EnvironmentLost(f"{self._server.url}: {_root_cause(error)}")
            lost.__cause__ = error
            if not ready.done():
                ready.set_exception(lost)
                ready.exception()  # marks it as seen: the episode may have been cancelled meanwhile
            if not isinstance(error, Exception | BaseExceptionGroup):
                raise
            raise lost from error

    async def _unless_lost(self, call: Any, seconds: float, what: str) -> Any:
        """Await ``call``, but no longer than the session lives.

        Raises:
            TimeoutError: no answer in time.
            EnvironmentLost: the session ended first.
        """
        assert self._task is not None
        asking = asyncio.ensure_future(call)
        try:
            await asyncio.wait({asking, self._task}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if asking.done():
                return asking.result()
            if self._task.done():
                error = self._task.exception() if not self._task.cancelled() else None
                raise EnvironmentLost(f"the tool server went away during {what}: {error or 'session closed'}")
            raise TimeoutError
        finally:
            if not asking.done():
                asking.cancel()
            with contextlib.suppress(BaseException):
                await asyncio.wait({asking}, timeout=1)


class _SessionClient(httpx.AsyncClient):
    """The HTTP client of one session, without what makes the SDK's own one expensive, and with an eye on its answers.

    All use the same connections. No stream is held open for messages that the server begins, which the specification
    leaves to the client: nothing here would read them. And an answer that breaks off sets ``over``: where it is an
    event stream, the SDK would say nothing, and the call would wait for its timeout.
    """

    def __init__(
        self,
        over: "asyncio.Future[str | None]",
        connections: httpx.AsyncBaseTransport,
        headers: dict[str, str] | None = None,
        timeout: httpx.Timeout | None = None,
        auth: httpx.Auth | None = None,
    ):
        super().__init__(
            headers=headers,
            timeout=timeout,
            auth=auth,
            follow_redirects=True,
            transport=connections,
            trust_env=False,
        )
        self._over = over

    async def send(self, request: httpx.Request, **options: Any) -> httpx.Response:
        # With a `Last-Event-ID` it is an answer that goes on where the server interrupted it.
        if request.method == "GET" and "Last-Event-ID" not in request.headers:
            return httpx.Response(httpx.codes.METHOD_NOT_ALLOWED, request=request)
        response = await super().send(request, **options)
        response.stream = _WatchedStream(response.stream, self._over)
        return response


class _Connections(httpx.AsyncHTTPTransport):
    """A pool of connections that outlives the clients that use it."""

    async def __aexit__(self, *_: object) -> None:
        """A session is over; the next one goes on with its connections."""

    async def aclose(self) -> None:
        """As above."""


_pools: "WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str | None, _Connections]]" = WeakKeyDictionary()


def _connections(url: str) -> _Connections:
    """The connections of this event loop, by the proxy that ``url`` has to be reached through."""
    proxy = _proxy(url)
    pools = _pools.setdefault(asyncio.get_running_loop(), {})
    if proxy not in pools:
        limits = httpx.Limits(
            max_connections=None, max_keepalive_connections=64, keepalive_expiry=_KEPT_SECONDS
        )
        pools[proxy] = _Connections(verify=_tls_context(), limits=limits, proxy=proxy)
    return pools[proxy]


def _proxy(url: str) -> str | None:
    """What the environment variables say; nothing near is reached through a proxy."""
    parts = httpx.URL(url)
    if is_near(url) or urllib.request.proxy_bypass(parts.host):
        return None
    return urllib.request.getproxies().get(parts.scheme)


class _Numbered:
    """A request that can be given up: the server is told by the number that the SDK gave it."""

    def __init__(self, session: Any, send: Any):
        self._session, self._send = session, send
        self._number: int | None = None

    async def __call__(self) -> Any:
        self._number = self._session._request_id  # what `send_request` takes next, before it first waits
        return await self._send()

    async def give_up(self, reason: str) -> None:
        """Tell the server, if it can be told at once."""
        from mcp.types import CancelledNotification, CancelledNotificationParams, ClientNotification

        if self._number is None:
            return
        params = CancelledNotificationParams(requestId=self._number, reason=reason)
        notification = ClientNotification(
            CancelledNotification(method="notifications/cancelled", params=params)
        )
        with contextlib.suppress(Exception):
            await asyncio.wait_for(self._session.send_notification(notification), 1.0)


class _WatchedStream(httpx.AsyncByteStream):
    """The body of a response, that says so if it breaks off."""

    def __init__(self, stream: Any, over: "asyncio.Future[str | None]"):
        self._stream = stream
        self._over = over

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._stream:
                yield chunk
        except httpx.TransportError as error:
            if not self._over.done():
                self._over.set_result(_root_cause(error))
            raise

    async def aclose(self) -> None:
        await self._stream.aclose()


@lru_cache(maxsize=1)
def _tls_context() -> ssl.SSLContext:
    return httpx.create_ssl_context()


async def wait_until_healthy(health_url: str, seconds: float) -> bool:
    """Poll a health endpoint until it answers 200 or ``seconds`` have passed."""
    deadline = time.monotonic() + seconds
    async with httpx.AsyncClient(timeout=2.0, trust_env=not is_near(health_url)) as client:
        while True:
            with contextlib.suppress(httpx.HTTPError):
                if (await client.get(health_url)).status_code == 200:
                    return True
            if time.monotonic() >= deadline:
                return False
            await asyncio.sleep(0.5)


_schema_cache: dict[tuple[str, tuple[tuple[str, str], ...]], tuple[float, list[dict[str, Any]]]] = {}
_schema_requests: dict[tuple[str, tuple[tuple[str, str], ...]], "asyncio.Task[list[dict[str, Any]]]"] = {}


async def _schemas_of(server: ToolServer) -> list[dict[str, Any]]:
    """One process asks once a minute, and all episodes that begin at the same time share the answer, or the failure."""
    key = (server.url, tuple(sorted(server.headers.items())))
    known = _schema_cache.get(key)
    if known is not None and time.monotonic() - known[0] <= _SCHEMA_SECONDS:
        return known[1]
    asking = _schema_requests.get(key)
    if asking is None or asking.done() or asking.get_loop() is not asyncio.get_running_loop():
        asking = asyncio.create_task(_ask_schemas(server))
        _schema_requests[key] = asking
    tools = await asyncio.shield(asking)
    _schema_cache[key] = (time.monotonic(), tools)
    return tools


async def _ask_schemas(server: ToolServer) -> list[dict[str, Any]]:
    async with ToolSession(server) as session:
        return await session.list_tools()


def _unsendable(arguments: Mapping[str, Any]) -> str | None:
    """Why a tool cannot be called with these, or None; the model wrote them, and they may be anything."""
    try:
        json.dumps(arguments, ensure_ascii=False, allow_nan=False).encode()
        return f"are nested more than {_DEPTH} deep" if _depth(arguments) > _DEPTH else None
    except (ValueError, RecursionError) as error:
        return f"cannot be written as JSON: {error}"


def _depth(value: Any) -> int:
    if not isinstance(value, dict | list):
        return 0
    return 1 + max(map(_depth, value.values() if isinstance(value, dict) else value), default=0)


def _text_of(result: Any) -> str:
    """The text parts of a tool result; other parts are named, not lost silently."""
    parts = []
    for part in result.content:
        if part.type == "text":
            parts.append(part.text)
        elif part.type == "resource" and getattr(part.resource, "text", None) is not None:
            parts.append(part.resource.text)
        else:
            parts.append(f"[{part.type} content, not shown]")
    return "\n".join(parts)


def _kind(data: Any) -> str | None:
    """The type of a failure, where the server is one of ours."""
    return data.get("type") if isinstance(data, dict) else None


def _is_busy(error: BaseException | None) -> bool:
    """Whether the server had no room for another session."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    busy = httpx.codes.SERVICE_UNAVAILABLE
    return isinstance(error, httpx.HTTPStatusError) and error.response.status_code == busy


def _root_cause(error: BaseException) -> str:
    """The first plain error inside groups of them, as one line."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    said = str(error).splitlines()
    return f"{type(error).__name__}: {said[0]}" if said else type(error).__name__
