"""The tool gateway's HTTP server: one per process, on loopback, for all its episodes."""

import asyncio
import hmac
import json
from typing import Any
from weakref import WeakKeyDictionary

import aiohttp
from aiohttp import web

from aworld_train.rollout.cassette import Cassette, Mode
from aworld_train.rollout.tool_gateway.relay import LOST, CallRelay
from aworld_train.rollout.tool_gateway.replay import Message, play, replay_call, reply
from aworld_train.rollout.tool_gateway.session import ToolGatewaySession
from aworld_train.rollout.tools import ToolServer
from aworld_train.serving.mcp_messages import SESSION_HEADER, error, refusal

_MAX_BODY_BYTES = 64 << 20
_CONNECT_SECONDS = 60.0  # importing frameworks in this process blocks its event loop for that long
# Shorter than uvicorn's five seconds: a connection that the server closes just as it is reused would look like a lost
# environment.
_KEEPALIVE_SECONDS = 4.0


class ToolGateway:
    """Serves each episode's session at an address of its own until the session is closed."""

    _address: str  # once it listens
    _client: aiohttp.ClientSession

    def __init__(self) -> None:
        self._sessions: dict[str, ToolGatewaySession] = {}
        self._runner: web.AppRunner | None = None
        self._starting = asyncio.Lock()

    async def start(self) -> None:
        """Listen on a free port; does nothing if it already listens."""
        async with self._starting:
            if self._runner is not None:
                return
            app = web.Application(client_max_size=_MAX_BODY_BYTES)
            app.router.add_route("*", "/{key}/mcp", self._serve)
            # A request that the agent breaks off is broken off at the environment too.
            runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=1)
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            host, port = runner.addresses[0]
            self._address = f"http://{host}:{port}"
            self._client = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEPALIVE_SECONDS),
                # The relay limits the time of each request by its kind.
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS),
                headers={"Accept-Encoding": "identity"},
                cookie_jar=aiohttp.DummyCookieJar(),
            )
            self._runner = runner

    async def stop(self) -> None:
        runner, self._runner = self._runner, None
        if runner is None:
            return
        closing = [session.close() for session in list(self._sessions.values())]
        # A failed recording is reported by its episode.
        await asyncio.gather(*closing, return_exceptions=True)
        await runner.cleanup()
        await self._client.close()

    async def open_session(
        self, upstream: ToolServer, cassette: Cassette | None = None
    ) -> ToolGatewaySession:
        """Open a session for one episode, valid until its ``close``; the agent does not see the headers of
        ``upstream``."""
        await self.start()
        session = ToolGatewaySession(upstream, cassette, self._address, self._client, self._remove)
        self._sessions[session.token] = session
        return session

    def _remove(self, session: ToolGatewaySession) -> None:
        self._sessions.pop(session.token, None)

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        session = self._sessions.get(request.match_info["key"])
        if session is None:
            return _refusal(404, "no such episode: it is over")
        authorization = request.headers.get("Authorization")
        if authorization is not None and not hmac.compare_digest(
            authorization.encode(), f"Bearer {session.token}".encode()
        ):
            return _refusal(401, "the bearer token is not this episode's")
        task: asyncio.Task[Any] | None = asyncio.current_task()
        assert task is not None
        session.tasks.add(task)
        try:
            return await _handle(session, request)
        finally:
            session.tasks.discard(task)


async def _handle(session: ToolGatewaySession, request: web.Request) -> web.StreamResponse:
    body, message = b"", None
    if request.method == "POST":
        body = await request.read()
        try:
            message = json.loads(body)
        except (ValueError, RecursionError):
            return _refusal(400, "the body is not valid JSON")
        if not isinstance(message, dict):  # batches are in no revision since 2025-06-18
            return _refusal(400, "the body is not a single JSON-RPC message")
    if session.cassette is not None and session.cassette.mode is Mode.replay:
        return play(session, request, message)
    mcp_session = request.headers.get(SESSION_HEADER)
    if mcp_session is not None and mcp_session not in session.mcp_sessions:
        return _refusal(404, "no such session: it has ended, or was another's")
    if request.method == "DELETE" and mcp_session is not None:
        session.mcp_sessions.discard(mcp_session)
    return await _answer_request(session, request, mcp_session, body, message)


async def _answer_request(
    session: ToolGatewaySession,
    request: web.Request,
    mcp_session: str | None,
    body: bytes,
    message: Message | None,
) -> web.StreamResponse:
    """Note the request in the session and answer it: from the cassette, or from the environment unless it is lost."""
    call = None
    method = message.get("method") if message is not None and "id" in message else None
    if message is not None and message.get("method") == "notifications/cancelled":
        session.cancel(mcp_session, message)
    elif message is not None and method == "tools/list":
        session.begin_list(mcp_session, message)
    elif message is not None and method == "tools/call":
        call = session.begin_call(mcp_session, message)
        recorded = None if session.lost else replay_call(session, call)
        if recorded is not None:
            session.forget(mcp_session, message)
            return reply(message, recorded)
    if session.lost is None:
        return await CallRelay(session, request, body, message, call).run()
    if call is not None:
        session.end_call(call, failed=True)
    if message is None or method is None:
        return web.Response(status=404)
    return reply(message, {"error": error("environment_lost", LOST)})


def _refusal(status: int, reason: str) -> web.Response:
    return web.json_response(refusal(reason), status=status)


_gateways: "WeakKeyDictionary[asyncio.AbstractEventLoop, ToolGateway]" = WeakKeyDictionary()


async def tool_gateway() -> ToolGateway:
    """The tool gateway of this event loop, started at the first call."""
    gateway = _gateways.setdefault(asyncio.get_running_loop(), ToolGateway())
    await gateway.start()
    return gateway
