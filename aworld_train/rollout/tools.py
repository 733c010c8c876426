"""An episode's tools: one MCP session, opened at the first call and closed with the episode.

A tool that reports an error, takes too long or answers with something else than a result gives an error *result*, to
which the agent can react. The server is notified of calls that are abandoned. Only opening a session is retried, while
the server is full.
"""

import asyncio
import base64
import contextlib
import itertools
import json
import logging
import math
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Self

import aiohttp

from aworld_train.episode.images import MAX_IMAGES, Image, NoImage
from aworld_train.network import proxy_for
from aworld_train.rollout.episode_clock import waiting_for_worker
from aworld_train.rollout.http_client import UVICORN_KEEPALIVE_SECONDS, SessionPerLoop
from aworld_train.rollout.loss_evidence import LostSession, failure_of
from aworld_train.rollout.mcp_client import McpSession, PendingRequest, RequestFailure, ServerFailure
from aworld_train.rollout.outcome import EnvironmentLost
from aworld_train.rollout.tool_answers import MAX_DEPTH, depth
from aworld_train.rollout.tool_selection import ALL_TOOLS, ToolSelection
from aworld_train.serving.tool_results import valid_result, valid_tools

_CALL_SECONDS = 60.0  # for a call of a server that does not say how long one may take
_MARGIN_SECONDS = 30.0  # in which the environment reports that a call took too long
_LOG_SECONDS = 10.0  # between two lines about waits
_CLOSE_SECONDS = 5.0
_GIVE_UP_SECONDS = 1.0
_SCHEMA_SECONDS = 60.0  # how long a tool list is used before it is requested again
_BUSY_SECONDS = (0.5, 1.0, 2.0, 4.0)  # waits before a session is requested again from a full server
_MAX_PAGES = 100  # of a tool list
_HEALTH_SECONDS = 2.0  # for one answer of the health endpoint
_HTTP = SessionPerLoop(UVICORN_KEEPALIVE_SECONDS)


_log = logging.getLogger(__name__)
_logged = -math.inf  # when a wait was last logged


@dataclass(frozen=True)
class ToolResult:
    """A tool's answer as text; without ``raw``, the server's result or error, it is the client's: no answer came."""

    text: str
    is_error: bool
    raw: Any = field(default=None, repr=False)
    replayed: bool = field(default=False, compare=False)


@dataclass(frozen=True)
class ToolServer:
    """Where the tools are, and how long to wait for them.

    Without ``call_timeout`` the environment's own limits hold, which then ends the call itself, or 60 seconds.
    ``connect_timeout`` includes the wait for a free worker. The ``selection`` is of what an agent sees.
    """

    url: str
    headers: Mapping[str, str]
    call_timeout: float | None = None
    connect_timeout: float = 30.0
    selection: ToolSelection = ALL_TOOLS

    def call_seconds(self, limits: Mapping[str, float]) -> float:
        if self.call_timeout is not None:
            return self.call_timeout
        return max(limits.values()) + _MARGIN_SECONDS if limits else _CALL_SECONDS

    async def schemas(self) -> list[dict[str, Any]]:
        """All tools, selected or not, as OpenAI function schemas; cached for a minute."""
        with waiting_for_worker():
            return await _schemas_of(self)


def tool_headers(token: str | None, servers: Sequence[str]) -> dict[str, str]:
    """What a request to an environment says of its sender, and of the ``servers`` it wants (empty: all)."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return headers | ({"MCP_SERVERS": ",".join(servers)} if servers else {})


class ToolSession:
    """One session with a tool server: ``async with ToolSession(server) as tools: await tools.call(...)``."""

    def __init__(self, server: ToolServer):
        self._server = server
        self._task: asyncio.Task[McpSession] | None = None
        self._opened = 0.0  # monotonic clock

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        if self._task is None:
            return
        if not self._task.done():
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=_CLOSE_SECONDS)
        elif not self._task.cancelled() and self._task.exception() is None:
            await _close(self._task.result())

    async def call(self, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Call a tool; raises ``EnvironmentLost``, or ``ToolsBroken`` without evidence of the environment's fault."""
        if reason := _unsendable(arguments):
            return ToolResult(f"Error: the arguments of {name} {reason}", True)
        session = await self._session()
        seconds = self._server.call_seconds(session.tool_timeouts)
        request = session.request("tools/call", {"name": name, "arguments": arguments})
        try:
            done, _ = await asyncio.wait({request.answer}, timeout=seconds)
        except asyncio.CancelledError:
            await _cancel(session, request, "the episode was cancelled")
            raise
        if not done:
            await _cancel(session, request, "it took too long")
            return ToolResult(f"Error: no answer within {seconds:g} seconds", True)
        try:
            result = valid_result(request.answer.result())
            return ToolResult(text_of(result), bool(result.get("isError")), result)
        except RequestFailure as failure:
            if failure.kind == "worker_lost":  # perhaps: the tools of the session may say so too
                await self._check_session(session, f"{failure} during tool {name}")
            return ToolResult(f"Error: {failure}", True, failure.error)
        except ServerFailure as failure:
            await self._check_session(session, f"{failure}, during tool {name}", failure.status)
            return ToolResult(f"Error: there is no result of {name}: {failure}", True)

    async def _check_session(self, session: McpSession, reason: str, status: int | None = None) -> None:
        lost = LostSession(
            self._server.url, self._server.headers, session.session_id, self._opened, status, reason
        )
        if (failure := await failure_of(lost)) is not None:
            raise failure

    async def open(self) -> None:
        await self._session()

    async def list_tools(self) -> list[dict[str, Any]]:
        session = await self._session()
        tools: list[dict[str, Any]] = []
        params: dict[str, Any] = {}
        try:
            async with asyncio.timeout(self._server.connect_timeout):
                for _ in range(_MAX_PAGES):
                    page = await session.request("tools/list", params).answer
                    tools += [function_schema(tool) for tool in valid_tools(page["tools"])]
                    cursor = page.get("nextCursor")
                    if not cursor or params == {"cursor": cursor}:
                        break
                    params = {"cursor": cursor}
        except TimeoutError as error:
            raise EnvironmentLost(f"{self._server.url} did not list its tools in time") from error
        except (ServerFailure, RequestFailure, KeyError) as error:
            raise EnvironmentLost(f"{self._server.url} did not list its tools: {error}") from error
        return tools

    async def _session(self) -> McpSession:
        if self._task is None:
            self._task = asyncio.create_task(self._open())
        with waiting_for_worker():
            return await asyncio.shield(self._task)

    def _log_wait(self, message: str) -> None:
        """Log what the server says while it opens the session; once in a while, for all sessions of the process."""
        global _logged
        now = time.monotonic()
        if now - _logged >= _LOG_SECONDS:
            _logged = now
            _log.warning("%s: %s", self._server.url, message)

    async def _open(self) -> McpSession:
        began = time.monotonic()
        seconds = self._server.connect_timeout
        refused = ""
        try:
            async with asyncio.timeout(seconds):
                for attempt in itertools.count():
                    session = McpSession(self._server.url, self._server.headers, seconds, self._log_wait)
                    try:
                        await session.initialize()
                        self._opened = time.monotonic()
                        return session
                    except asyncio.CancelledError:
                        await _close(session)
                        raise
                    except ServerFailure as failure:
                        await _close(session)
                        pause = _BUSY_SECONDS[min(attempt, len(_BUSY_SECONDS) - 1)] * random.uniform(0.5, 1.5)
                        busy = failure.status == HTTPStatus.SERVICE_UNAVAILABLE
                        if not busy or time.monotonic() - began + pause >= seconds:
                            raise EnvironmentLost(f"{self._server.url}: {failure}") from failure
                        refused = f": {failure}"
                        await asyncio.sleep(pause)
        except TimeoutError as error:
            raise EnvironmentLost(
                f"{self._server.url} did not open a session within {seconds:g} seconds{refused}"
            ) from error
        raise AssertionError("unreachable")


async def _close(session: McpSession) -> None:
    with contextlib.suppress(ServerFailure, TimeoutError):
        async with asyncio.timeout(_CLOSE_SECONDS):
            await session.close()


async def _cancel(session: McpSession, request: PendingRequest, reason: str) -> None:
    with contextlib.suppress(ServerFailure, TimeoutError):
        async with asyncio.timeout(_GIVE_UP_SECONDS):
            await session.cancel(request, reason)


async def wait_until_healthy(health_url: str, seconds: float) -> bool:
    """Poll a health endpoint until it answers 200 or ``seconds`` have passed."""
    deadline = time.monotonic() + seconds
    proxy = proxy_for(health_url)
    session, limit = await _HTTP.get(), aiohttp.ClientTimeout(total=_HEALTH_SECONDS)
    while True:
        with contextlib.suppress(aiohttp.ClientError, OSError):
            async with session.get(health_url, proxy=proxy, allow_redirects=False, timeout=limit) as response:
                await response.read()
            if response.status == HTTPStatus.OK:
                return True
        if time.monotonic() >= deadline:
            return False
        await asyncio.sleep(0.5)


_schema_cache: dict[tuple[str, tuple[tuple[str, str], ...]], tuple[float, list[dict[str, Any]]]] = {}
_schema_requests: dict[tuple[str, tuple[tuple[str, str], ...]], "asyncio.Task[list[dict[str, Any]]]"] = {}


async def _schemas_of(server: ToolServer) -> list[dict[str, Any]]:
    """Request the tools once a minute per process; episodes that begin together share the answer or the failure."""
    key = (server.url, tuple(sorted(server.headers.items())))
    cached = _schema_cache.get(key)
    if cached is not None and time.monotonic() - cached[0] <= _SCHEMA_SECONDS:
        return cached[1]
    request = _schema_requests.get(key)
    if request is None or request.done() or request.get_loop() is not asyncio.get_running_loop():
        request = asyncio.create_task(_request_schemas(server))
        _schema_requests[key] = request
    tools = await asyncio.shield(request)
    _schema_cache[key] = (time.monotonic(), tools)
    return tools


async def _request_schemas(server: ToolServer) -> list[dict[str, Any]]:
    async with ToolSession(server) as session:
        return await session.list_tools()


def _unsendable(arguments: Mapping[str, Any]) -> str | None:
    """Why these arguments, which the model wrote, cannot be sent to a tool; None if they can."""
    try:
        json.dumps(arguments, ensure_ascii=False, allow_nan=False).encode()
        return f"are nested more than {MAX_DEPTH} deep" if depth(arguments) > MAX_DEPTH else None
    except (ValueError, RecursionError) as error:
        return f"cannot be written as JSON: {error}"


def function_schema(tool: Mapping[str, Any]) -> dict[str, Any]:
    function = {
        "name": tool["name"],
        "description": tool.get("description") or "",
        "parameters": tool["inputSchema"],
    }
    return {"type": "function", "function": function}


def text_of(result: Mapping[str, Any]) -> str:
    """The text parts of a tool result, with a note in place of each part of another type."""
    return "\n".join([_text_of_part(part) for part in result["content"]])


def text_and_images_of(result: Mapping[str, Any]) -> tuple[str, tuple[Image, ...]]:
    """A tool result as ``text_of``, with its images instead of notes; an image that cannot be read stays a note."""
    text = ""
    images: list[Image] = []
    after_text = False
    for part in result["content"]:
        image = _image(part, len(text)) if len(images) < MAX_IMAGES else None
        if image is not None:
            images.append(image)
        else:
            text += ("\n" if after_text else "") + _text_of_part(part)
        after_text = image is None
    return text, tuple(images)


def _text_of_part(part: Mapping[str, Any]) -> str:
    match part:
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": "resource", "resource": {"uri": str(uri), "text": str(text)}}:
            return f"[resource {uri}]\n{text}"
        case {"type": "resource", "resource": {"uri": str(uri), **resource}}:
            kind = str(resource.get("mimeType") or "binary")
            decoded = _decoded(resource.get("blob")) if kind.startswith("text/") else None
            if decoded is None:
                return f"[resource {uri}, {kind}, not shown]"
            return f"[resource {uri}]\n{decoded}"
        case {"type": "resource_link", "uri": uri}:
            fields = (part.get(key) for key in ("name", "mimeType", "title", "description"))
            return f"[link to {uri}: {', '.join(str(field) for field in fields if field)}]"
    return f"[{part['type']} content, not shown]"


def _decoded(blob: Any) -> str | None:
    try:
        return base64.b64decode(blob).decode()
    except (ValueError, TypeError):
        return None


def _image(part: Mapping[str, Any], position: int) -> Image | None:
    match part:
        case {"type": "image", "data": str(data)}:
            pass
        case {"type": "resource", "resource": {"mimeType": str(kind), "blob": str(data)}} if kind.startswith(
            "image/"
        ):
            pass
        case _:
            return None
    try:
        return Image.read_base64(data, position)
    except NoImage:
        return None
