"""The gateway's HTTP side: MCP at ``/mcp`` for those with a token, ``/health`` and ``/metrics`` for everybody.

Bodies pass through as they are. What the gateway adds is who may come in, which worker a session has, and an answer
where a worker has none to give any more.
"""

import asyncio
import contextlib
import json
import secrets
import sys
import time
from dataclasses import dataclass
from typing import Any

import aiohttp
from aiohttp import web

from aworld_train.serving.channel import Channel, derive_secret
from aworld_train.serving.gateway.link import WorkerLink
from aworld_train.serving.gateway.metrics import Metrics
from aworld_train.serving.gateway.pool import Busy, Pool, Session
from aworld_train.serving.tokens import Pass, Refused, verify

SESSION_HEADER = "Mcp-Session-Id"
PURPOSE_HEADER, SCORING = "Aworld-Purpose", "scoring"
_NO_SCORING = (
    "this environment has no worker for scoring, and answers are not run where agents are: start it with "
    "--scoring-workers 1 (in a recipe: env.scoring_workers=1)"
)
_PASSED_ON = ("Accept", "Content-Type", "Last-Event-ID", "MCP-Protocol-Version", "MCP_SERVERS", "MCP-Servers")
_BODY_BYTES = 64 << 20
_END_SECONDS = 5.0
_INITIALIZED = b"notifications/initialized"
_MOST_ADMITTED = 1024
_RETRY_AFTER = 5
_AGAIN_SECONDS = 0.05
_WORKER_LOST = "the worker of this session was lost; what it did is gone, and a new session has to be opened"
# JSON-RPC 2.0: the range that it leaves to servers, and a request that is none.
_SERVER_ERROR = -32000
_INVALID_REQUEST = -32600


@dataclass(frozen=True)
class Limits:
    """How much, and how long.

    Attributes:
        queue: Most sessions that wait for a worker.
        queue_seconds: How long one waits.
        idle_seconds: A session without a request for this long is ended.
        vanish_seconds: One whose client broke off a request and was not heard of for this long is ended.
    """

    queue: int = 1024
    queue_seconds: float = 600.0
    idle_seconds: float = 900.0
    vanish_seconds: float = 10.0


class Gateway:
    """The state behind the routes.

    Args:
        name: Name of the environment, which tokens have to name too.
        secret: What its tokens are signed with.
        sockets: Where its workers listen.
        limits: See ``Limits``.
        scoring: How many of the workers, the last, are for scoring alone.
    """

    def __init__(self, name: str, secret: str, sockets: list[str], limits: Limits, scoring: int = 0):
        self._name, self._secret, self._limits = name, secret, limits
        self._admitted: dict[str, Pass] = {}  # by what they showed
        self.metrics = Metrics()
        self.pool = Pool(limits.queue)
        self.pool.links = [
            WorkerLink(
                number,
                socket,
                Channel(derive_secret(secret, number)),
                number >= len(sockets) - scoring,
                self.pool.dispatch,
                self._lost,
                self._called,
            )
            for number, socket in enumerate(sockets)
        ]
        self._tasks: set[asyncio.Task[None]] = set()

    def application(self) -> web.Application:
        """The routes."""
        app = web.Application(client_max_size=_BODY_BYTES)
        app.router.add_get("/health", self.health)
        app.router.add_get("/metrics", self.show_metrics)
        app.router.add_route("*", "/mcp", self.mcp)
        app.cleanup_ctx.append(self._living)
        return app

    async def _living(self, _: web.Application) -> Any:
        for link in self.pool.links:
            self._later(link.follow())
        self._later(self._reap())
        yield
        await asyncio.gather(
            *(self._end(session, "stopped") for session in list(self.pool.sessions.values()))
        )
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def health(self, _: web.Request) -> web.Response:
        """200 where there is a worker that works, else 503; nothing in it is secret."""
        states = self.pool.states()
        fine = any(link.proved for link in self.pool.links)
        broken = {name: reason for link in self.pool.links for name, reason in link.broken.items()}
        description = {
            "status": "ok" if fine else "no worker",
            "name": self._name,
            "workers": states,
            "scoring": self.pool.states(scoring=True),
            "states": [link.state for link in self.pool.links],
            "servers": next((link.servers for link in self.pool.links if link.alive), []),
            "broken": broken,
            "sessions": len(self.pool.sessions),
            "queued": self.pool.queued,
        }
        return web.json_response(description, status=200 if fine else 503)

    async def show_metrics(self, _: web.Request) -> web.Response:
        """The numbers of this moment."""
        self.metrics.open.set(len(self.pool.sessions))
        self.metrics.queued.set(self.pool.queued)
        for state, count in self.pool.states().items():
            self.metrics.workers.labels(state).set(count)
        return web.Response(body=self.metrics.text(), headers={"Content-Type": "text/plain; version=0.0.4"})

    async def mcp(self, request: web.Request) -> web.StreamResponse:
        """A request of a client, whatever it is."""
        try:
            allowed = self._admit(request.headers.get("Authorization", ""))
        except Refused as refusal:
            self.metrics.refused.labels("token").inc()
            return _refusal(401, str(refusal), {"WWW-Authenticate": "Bearer"})
        session_id = request.headers.get(SESSION_HEADER)
        if session_id is None:
            return await self._open(request, allowed)
        session = self.pool.sessions.get(session_id)
        if session is None or session.token_id != allowed.token_id:
            return _refusal(404, "there is no such session: it has ended, or was another's")
        if request.method == "DELETE":
            await self._end(session, "closed")
            return web.Response(status=200)
        body = await request.read()
        if _INITIALIZED in body and _part(body, "method") == _INITIALIZED.decode():
            session.last_seen, session.vanished = time.monotonic(), None
            return web.Response(status=202)  # every client has to say so, and no worker has to know
        return await self._pass_on(request, session, body)

    def _admit(self, authorization: str) -> Pass:
        """What a client may do; a token that was good is not looked at again until it expires.

        Raises:
            Refused: Nothing.
        """
        known = self._admitted.get(authorization)
        if known is not None and time.time() < known.expires:
            return known
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer":
            raise Refused("a bearer token is needed")
        allowed = verify(self._secret, self._name, token.strip())
        if len(self._admitted) >= _MOST_ADMITTED:
            self._admitted.clear()
        self._admitted[authorization] = allowed
        return allowed

    async def _open(self, request: web.Request, allowed: Pass) -> web.StreamResponse:
        body = await request.read()
        if request.method != "POST" or b'"initialize"' not in body:
            return _refusal(400, f"the header {SESSION_HEADER} is missing, and this opens no session")
        if allowed.sessions is not None and self.pool.sessions_of(allowed.token_id) >= allowed.sessions:
            self.metrics.refused.labels("session_limit").inc()
            return _refusal(
                429,
                f"this token may have {allowed.sessions} sessions at a time",
                {"Retry-After": str(_RETRY_AFTER)},
            )
        scoring = request.headers.get(PURPOSE_HEADER) == SCORING
        if scoring and not any(link.scoring for link in self.pool.links):
            return _refusal(400, _NO_SCORING)
        began = time.monotonic()
        while True:
            session_id = secrets.token_hex(16)
            try:
                remaining = self._limits.queue_seconds - (time.monotonic() - began)
                link = await self.pool.reserve(session_id, remaining, scoring)
            except Busy as busy:
                self.metrics.refused.labels("busy").inc()
                return _refusal(503, str(busy), {"Retry-After": str(_RETRY_AFTER)})
            session = Session(session_id, link, allowed.token_id)
            self.pool.sessions[session_id] = session
            self.metrics.waited.observe(time.monotonic() - began)
            response: web.StreamResponse | None = None
            try:
                response = await self._pass_on(request, session, body, opening=True)
                if response.status == 503:
                    # The worker is not as free as it seemed; it says so itself when it is again.
                    link.ready = False
            finally:
                if response is None or response.status >= 400:
                    await self._end(session, "not opened")
            if response.status in (502, 503) and time.monotonic() - began < self._limits.queue_seconds:
                await asyncio.sleep(_AGAIN_SECONDS)
                continue
            if response.status < 400:
                self.metrics.sessions.inc()
            return response

    async def _pass_on(
        self, request: web.Request, session: Session, body: bytes, opening: bool = False
    ) -> web.StreamResponse:
        """The worker's answer; 502 where there was none and the session was only being opened."""
        headers = {name: request.headers[name] for name in _PASSED_ON if name in request.headers}
        headers[SESSION_HEADER] = session.session_id
        session.requests += 1
        session.vanished = None
        response: web.StreamResponse | None = None
        try:
            async with session.link.request(request.method, "/mcp", headers=headers, data=body) as answer:
                given = {"Content-Type": answer.headers.get("Content-Type", "application/json")}
                if opening and answer.status < 400:
                    given[SESSION_HEADER] = session.session_id
                if answer.headers.get("Content-Length") is not None:
                    return web.Response(body=await answer.read(), status=answer.status, headers=given)
                response = web.StreamResponse(status=answer.status, headers=given)
                await response.prepare(request)
                async for chunk in answer.content.iter_any():
                    await response.write(chunk)
                return response
        except asyncio.CancelledError:
            session.vanished = time.monotonic()
            raise
        except (aiohttp.ClientError, OSError):
            if request.transport is None or request.transport.is_closing():
                session.vanished = time.monotonic()
                raise
            if opening:
                return _refusal(502, _WORKER_LOST)
            return await _say_lost(request, body, response)
        finally:
            session.requests -= 1
            session.last_seen = time.monotonic()

    async def _end(self, session: Session, cause: str) -> None:
        """End a session at its worker too; its worker is taken for new ones when it says so itself.

        Once begun it is carried through, whoever asked for it: a worker that is not told would be nobody's for ever.
        """
        if self.pool.sessions.pop(session.session_id, None) is None:
            return
        self.metrics.ended.labels(cause).inc()
        await asyncio.shield(self._later(self._take_back(session)))

    async def _take_back(self, session: Session) -> None:
        link = session.link
        was_ready, http = link.ready, link.http
        link.ready = was_ready and not link.exclusive
        try:
            async with asyncio.timeout(_END_SECONDS):
                known = await self._close(link, session.session_id)
            if not known:  # there is nothing to clean
                link.ready = link.ready or was_ready
        except TimeoutError:
            await link.reset(http)  # it has no session any more that it does not hear of
        finally:
            self.pool.release(link, session.session_id)

    async def _close(self, link: WorkerLink, session_id: str) -> bool:
        """Tell a worker of the end, as often as it takes while it lives, and say whether it knew the session.

        The connection is not broken for that: others may have sessions there.
        """
        while True:
            try:
                async with link.request("DELETE", "/mcp", headers={SESSION_HEADER: session_id}) as answer:
                    return bool(answer.status != 404)
            except (aiohttp.ClientError, OSError):
                if not link.alive:
                    return False
            await asyncio.sleep(_AGAIN_SECONDS)

    def _lost(self, link: WorkerLink) -> None:
        for session_id in link.sessions:
            if self.pool.sessions.pop(session_id, None) is not None:
                self.metrics.ended.labels("worker_lost").inc()
        sys.stderr.write(f"worker {link.number} was lost with {len(link.sessions)} sessions\n")
        link.sessions.clear()

    def _called(self, server: str, outcome: str, seconds: float) -> None:
        self.metrics.calls.labels(server, outcome).inc()
        self.metrics.call_seconds.labels(server).observe(seconds)

    async def _reap(self) -> None:
        """End the sessions that nobody uses any more."""
        while True:
            await asyncio.sleep(min(1.0, self._limits.vanish_seconds, self._limits.idle_seconds))
            now = time.monotonic()
            for session in list(self.pool.sessions.values()):
                if session.vanished is not None and now - session.vanished > self._limits.vanish_seconds:
                    self._later(self._end(session, "vanished"))
                elif not session.requests and now - session.last_seen > self._limits.idle_seconds:
                    self._later(self._end(session, "idle"))

    def _later(self, work: Any) -> "asyncio.Task[None]":
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


async def _say_lost(
    request: web.Request, body: bytes, begun: web.StreamResponse | None
) -> web.StreamResponse:
    """The answer to a request whose worker was lost, in the stream that was begun if there is one."""
    number = _part(body, "id")
    error = {"code": _SERVER_ERROR, "message": _WORKER_LOST, "data": {"type": "worker_lost"}}
    message = {"jsonrpc": "2.0", "id": number, "error": error}
    if begun is None:
        return web.json_response(message, status=200 if number is not None else 404)
    if number is not None:
        await begun.write(b"event: message\ndata: " + json.dumps(message).encode() + b"\n\n")
    return begun


def _part(body: bytes, name: str) -> Any:
    """That part of a message; None where it has none, or is no message."""
    with contextlib.suppress(ValueError, AttributeError):
        return json.loads(body).get(name)
    return None


def _refusal(status: int, reason: str, headers: dict[str, str] | None = None) -> web.Response:
    error = {"code": _INVALID_REQUEST, "message": reason}
    return web.json_response({"jsonrpc": "2.0", "id": None, "error": error}, status=status, headers=headers)
