"""The gateway itself: one HTTP server on this machine's loopback for all episodes of a process."""

import asyncio
import hmac
import json
import urllib.request
from typing import Any
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

import aiohttp
from aiohttp import web

from aworld_train.network import is_near
from aworld_train.rollout.cassette import Cassette, Mode
from aworld_train.rollout.tool_gateway.admission import ToolGatewaySession
from aworld_train.rollout.tool_gateway.messages import INVALID_REQUEST, Message, answer, failure
from aworld_train.rollout.tool_gateway.player import SESSION_HEADER, play, replay_call, reply
from aworld_train.rollout.tool_gateway.relay import LOST, Passage
from aworld_train.rollout.tools import ToolServer

_BODY_BYTES = 64 << 20
_CONNECT_SECONDS = 60.0  # frameworks are imported in this process, and keep its event loop waiting meanwhile
# Shorter than the five seconds that uvicorn keeps them: a connection that is closed while it is taken up again would
# look like a lost environment.
_KEPT_SECONDS = 4.0


class ToolGateway:
    """Admits episodes, and serves each at an address of its own until it is closed."""

    def __init__(self) -> None:
        self._admissions: dict[str, ToolGatewaySession] = {}
        self._clients: dict[bool, aiohttp.ClientSession] = {}
        self._runner: web.AppRunner | None = None
        self._starting = asyncio.Lock()
        self._address = ""

    async def start(self) -> None:
        """Listen on a port of its own choice; nothing happens where it does already."""
        async with self._starting:
            if self._runner is not None:
                return
            app = web.Application(client_max_size=_BODY_BYTES)
            app.router.add_route("*", "/{key}/mcp", self._serve)
            # An agent that breaks off a request takes the environment's part of it along.
            runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=1)
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            host, port = runner.addresses[0][:2]
            self._address = f"http://{host}:{port}"
            self._runner = runner

    async def stop(self) -> None:
        """Close all episodes and stop listening."""
        runner, self._runner = self._runner, None
        if runner is None:
            return
        closing = [admission.close() for admission in list(self._admissions.values())]
        await asyncio.gather(*closing, return_exceptions=True)  # a failed record is its episode's to report
        await runner.cleanup()
        for client in self._clients.values():
            await client.close()
        self._clients.clear()

    async def admit(self, upstream: ToolServer, cassette: Cassette | None = None) -> ToolGatewaySession:
        """An address for one episode, which lasts until its ``close``; the gateway is started if it is not yet.

        Args:
            upstream: The real environment; its headers are sent with every request, and the agent does not see them.
            cassette: Records, replays, or both.

        Raises:
            CassetteError: It is to be replayed, and has no tool list of this environment.
        """
        await self.start()
        http = self._client(upstream.url)
        admission = ToolGatewaySession(upstream, cassette, self._address, http, self._ended)
        self._admissions[admission.token] = admission
        return admission

    def _ended(self, admission: ToolGatewaySession) -> None:
        self._admissions.pop(admission.token, None)

    def _client(self, url: str) -> aiohttp.ClientSession:
        """One client for what is near, and one for what a proxy may stand before."""
        parts = urlsplit(url)
        direct = is_near(url) or bool(urllib.request.proxy_bypass(parts.hostname or ""))
        if direct not in self._clients:
            self._clients[direct] = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEPT_SECONDS),
                # How long an answer may take is limited per request, by what it is.
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS),
                trust_env=not direct,
                headers={"Accept-Encoding": "identity"},
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._clients[direct]

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        """A request of some agent: whose it is decides what becomes of it."""
        admission = self._admissions.get(request.match_info["key"])
        if admission is None:
            return _refusal(404, "there is no such episode: it is over")
        given = request.headers.get("Authorization")
        if given is not None and not hmac.compare_digest(
            given.encode(), f"Bearer {admission.token}".encode()
        ):
            return _refusal(401, "the bearer token is not this episode's")
        task: asyncio.Task[Any] | None = asyncio.current_task()
        assert task is not None
        admission.handling.add(task)
        try:
            return await _handle(admission, request)
        finally:
            admission.handling.discard(task)


async def _handle(admission: ToolGatewaySession, request: web.Request) -> web.StreamResponse:
    body, message = b"", None
    if request.method == "POST":
        body = await request.read()
        try:
            message = json.loads(body)
        except (ValueError, RecursionError):
            return _refusal(400, "the body is no JSON")
        if not isinstance(message, dict):
            return _refusal(
                400, "the body is no single JSON-RPC message"
            )  # batches: no revision since 2025-06-18
    if admission.cassette is not None and admission.cassette.mode is Mode.replay:
        return play(admission, request, message)
    session = request.headers.get(SESSION_HEADER)
    if session is not None and session not in admission.sessions:
        return _refusal(404, "there is no such session: it has ended, or was another's")
    if request.method == "DELETE" and session is not None:
        admission.sessions.discard(session)
    return await _pass(admission, request, session, body, message)


async def _pass(
    admission: ToolGatewaySession,
    request: web.Request,
    session: str | None,
    body: bytes,
    message: Message | None,
) -> web.StreamResponse:
    """Take down what the request is, and answer it: from the cassette, or the environment, if it is there."""
    call = None
    method = message.get("method") if message is not None and "id" in message else None
    if message is not None and message.get("method") == "notifications/cancelled":
        admission.cancel(session, message)
    elif message is not None and method == "tools/list":
        admission.begin_list(session, message)
    elif message is not None and method == "tools/call":
        call = admission.begin_call(session, message)
        said = None if admission.lost else replay_call(admission, call)
        if said is not None:
            admission.forget(session, message)
            return reply(message, said)
    if admission.lost is None:
        return await Passage(admission, request, body, message, call).walk()
    if call is not None:
        admission.end_call(call, failed=True)
    if message is None or method is None:
        return web.Response(status=404)
    return web.Response(
        body=answer(message, failure("environment_lost", LOST)), content_type="application/json"
    )


def _refusal(status: int, reason: str) -> web.Response:
    error = {"code": INVALID_REQUEST, "message": reason}
    return web.json_response({"jsonrpc": "2.0", "id": None, "error": error}, status=status)


_gateways: "WeakKeyDictionary[asyncio.AbstractEventLoop, ToolGateway]" = WeakKeyDictionary()


async def tool_gateway() -> ToolGateway:
    """The gateway of this process (of this event loop, where it has several), started when it is first asked for."""
    gateway = _gateways.setdefault(asyncio.get_running_loop(), ToolGateway())
    await gateway.start()
    return gateway
