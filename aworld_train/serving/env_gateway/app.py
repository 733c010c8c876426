"""The environment gateway's HTTP side: MCP at ``/mcp`` for clients with a token, ``/health`` and ``/metrics`` for all,
``/revoke`` for orders to revoke a token. Bodies are forwarded unchanged.
"""

import asyncio
import secrets
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from aworld_train.serving.channel import Channel, derive_secret
from aworld_train.serving.env_gateway.admission import TokenCheck
from aworld_train.serving.env_gateway.endings import PATH, WORKER_LOST, Endings
from aworld_train.serving.env_gateway.metrics import EgressCounts, Metrics
from aworld_train.serving.env_gateway.pool import Busy, Pool, WorkerSession
from aworld_train.serving.env_gateway.proxy_request import forward
from aworld_train.serving.env_gateway.request_limits import (
    MAX_MESSAGE_BYTES,
    MAX_OPENING_BYTES,
    RETRY_AFTER,
    Budget,
    ByteAllowance,
    Refusal,
    RequestBody,
    part_of,
)
from aworld_train.serving.env_gateway.waiting import WaitingClient
from aworld_train.serving.env_gateway.worker_client import WorkerClient
from aworld_train.serving.mcp_messages import SESSION_HEADER
from aworld_train.serving.tokens import InvalidToken, TokenClaims

PURPOSE_HEADER, SCORING = "Aworld-Purpose", "scoring"
_NO_SCORING = (
    "this environment has no worker for scoring, and answers are not run where agents are: start it with "
    "--scoring-workers 1 (in a recipe: env.scoring_workers=1)"
)
_END_SECONDS = 5.0
_INITIALIZED = b"notifications/initialized"
_RETRY_SECONDS = 0.05


@dataclass(frozen=True)
class GatewayLimits:
    """``queue`` is the most sessions that wait for a worker, and ``queue_seconds`` the longest wait.

    A session ends after ``idle_seconds`` without a request, or ``vanish_seconds`` after its client broke one off.
    """

    queue: int = 1024
    queue_seconds: float = 600.0
    idle_seconds: float = 900.0
    vanish_seconds: float = 10.0


class Gateway:
    """The state behind the routes; the last ``scoring`` of its workers are for scoring only.

    ``egress`` is the socket with the counts of the egress container.
    """

    def __init__(
        self,
        name: str,
        secret: str,
        sockets: list[str],
        limits: GatewayLimits,
        revoked: Sequence[Path] = (),
        scoring: int = 0,
        egress: str | None = None,
    ):
        self._name, self._limits = name, limits
        self._opening: Counter[str] = Counter()  # sessions that are not open yet, by token
        self._egress = EgressCounts(egress) if egress is not None else None
        self.admission = TokenCheck(name, secret, revoked)
        self.budget = Budget()
        self.metrics = Metrics()
        self.pool = Pool(limits.queue)
        self.pool.links = [
            WorkerClient(
                number,
                socket,
                Channel(derive_secret(secret, number)),
                number >= len(sockets) - scoring,
                self.pool.dispatch,
                self._handle_worker_loss,
                self._record_call,
            )
            for number, socket in enumerate(sockets)
        ]
        self._endings = Endings(name, self.pool)
        self._tasks: set[asyncio.Task[None]] = set()

    def application(self) -> web.Application:
        app = web.Application(middlewares=[self.admission.connections.middleware()])
        app.router.add_get("/health", self.health)
        app.router.add_get("/metrics", self.show_metrics)
        app.router.add_route("*", "/mcp", self.mcp)
        app.router.add_get(PATH, self.ending)
        app.router.add_post("/revoke", self.revoke)
        app.cleanup_ctx.append(self._run)
        return app

    async def _run(self, _: web.Application) -> Any:
        for link in self.pool.links:
            self._run_in_background(link.follow())
        self._run_in_background(self._reap())
        yield
        await asyncio.gather(
            *(self._end(session, "stopped") for session in list(self.pool.sessions.values()))
        )
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def health(self, _: web.Request) -> web.Response:
        """200 if a worker has been ready, else 503; nothing in it is secret."""
        states = self.pool.states()
        if self._egress is not None:
            await self._egress.refresh()
        is_healthy = any(link.proved for link in self.pool.links)
        broken = {name: reason for link in self.pool.links for name, reason in link.broken.items()}
        description = {
            "status": "ok" if is_healthy else "no worker",
            "name": self._name,
            "workers": states,
            "scoring": self.pool.states(scoring=True),
            "egress": self._egress.described() if self._egress else None,
            "states": [link.state for link in self.pool.links],
            "servers": next((link.servers for link in self.pool.links if link.alive), []),
            "broken": broken,
            "starting": sorted({link.starting for link in self.pool.links if link.alive and link.starting}),
            "sessions": len(self.pool.sessions),
            "queued": self.pool.queued,
        }
        return web.json_response(description, status=200 if is_healthy else 503)

    async def show_metrics(self, _: web.Request) -> web.Response:
        self.metrics.open.set(len(self.pool.sessions))
        self.metrics.queued.set(self.pool.queued)
        self.metrics.connections.set(len(self.admission.connections))
        self.metrics.held.set(self.budget.used)
        for state, count in self.pool.states().items():
            self.metrics.workers.labels(state).set(count)
        text = self.metrics.text()
        if self._egress is not None:
            await self._egress.refresh()
            text += self._egress.text()
        return web.Response(body=text, headers={"Content-Type": "text/plain; version=0.0.4"})

    async def mcp(self, request: web.Request) -> web.StreamResponse:
        try:
            claims = self.admission.admit(request)
            with ByteAllowance(self.budget, claims.token_id) as account:
                return await self._serve(request, claims, account)
        except InvalidToken as reason:
            self.metrics.refused.labels("token").inc()
            return _unauthorized(reason)
        except Refusal as refusal:
            self.metrics.refused.labels(refusal.cause).inc()
            return refusal.response()

    async def ending(self, request: web.Request) -> web.Response:
        try:
            claims = self.admission.admit(request)
        except InvalidToken as reason:
            return _unauthorized(reason)
        except Refusal as refusal:
            return refusal.response()
        session_id = request.headers.get(SESSION_HEADER, "")
        return web.json_response(self._endings.description(session_id, claims.token_id))

    async def revoke(self, request: web.Request) -> web.Response:
        try:
            revocation, is_stored = self.admission.revoke(request)
        except InvalidToken as reason:
            return _unauthorized(reason)
        sessions = [one for one in self.pool.sessions.values() if one.token_id == revocation.token_id]
        await asyncio.gather(*(self._end(session, "revoked") for session in sessions))
        return web.json_response({"sessions": len(sessions), "kept": is_stored})

    async def _serve(
        self, request: web.Request, claims: TokenClaims, account: ByteAllowance
    ) -> web.StreamResponse:
        session_id = request.headers.get(SESSION_HEADER)
        if session_id is None:
            return await self._open(request, claims, account)
        session = self.pool.sessions.get(session_id)
        if session is None or session.token_id != claims.token_id:
            raise Refusal(404, "session", "no such session: it has ended, or was another's")
        if request.method == "DELETE":
            await self._end(session, "closed")
            return web.Response(status=200)
        body = RequestBody(request, account, MAX_MESSAGE_BYTES)
        message = await body.read_or_stream()
        if _is_initialized(message):
            session.last_active, session.vanished = time.monotonic(), None
            return web.Response(status=202)  # every client sends it, and workers do not need it
        try:
            response = await forward(request, session, message, account)
        finally:
            if request.method == "POST" and self.pool.sessions.get(session_id) is not session:
                # The session ended meanwhile, and this message may have opened it at the worker again.
                self._run_in_background(self._close(session.link, session_id))
        if body.refusal is not None and not response.prepared:
            raise body.refusal
        return response

    async def _open(
        self, request: web.Request, claims: TokenClaims, account: ByteAllowance
    ) -> web.StreamResponse:
        token_id = claims.token_id
        not_an_opening = Refusal(
            400, "session", f"the header {SESSION_HEADER} is missing, and this opens no session"
        )
        if request.method != "POST":
            raise not_an_opening
        open_or_waiting = self.pool.sessions_of(token_id) + self._opening[token_id]
        if claims.sessions is not None and open_or_waiting >= claims.sessions:
            raise Refusal(
                429,
                "session_limit",
                f"this token may have {claims.sessions} sessions at a time",
                RETRY_AFTER,
            )
        self._opening[token_id] += 1
        try:
            message = await RequestBody(request, account, MAX_OPENING_BYTES).read()
            if b'"initialize"' not in message:
                raise not_an_opening
            return await self._open_at_worker(request, claims, message, account)
        finally:
            self._opening[token_id] -= 1
            if not self._opening[token_id]:
                del self._opening[token_id]

    async def _open_at_worker(
        self, request: web.Request, claims: TokenClaims, message: bytes, account: ByteAllowance
    ) -> web.StreamResponse:
        scoring = request.headers.get(PURPOSE_HEADER) == SCORING
        if scoring and not any(link.scoring for link in self.pool.links):
            raise Refusal(400, "scoring", _NO_SCORING)
        session_id = secrets.token_hex(16)
        client = WaitingClient(request, message, {SESSION_HEADER: session_id})
        try:
            response = await self._open_in_turn(client, claims, account, session_id, scoring)
            return await client.answer(response, WORKER_LOST if response.status >= 400 else "")
        except (ConnectionResetError, asyncio.CancelledError):
            if (session := self.pool.sessions.get(session_id)) is not None:
                self._run_in_background(self._end(session, "vanished"))
            raise
        except (Refusal, InvalidToken) as reason:
            if not client.has_response:
                raise
            cause = reason.cause if isinstance(reason, Refusal) else "token"
            self.metrics.refused.labels(cause).inc()
            response = reason.response() if isinstance(reason, Refusal) else _unauthorized(reason)
            return await client.answer(response, cause)

    async def _open_in_turn(
        self,
        client: WaitingClient,
        claims: TokenClaims,
        account: ByteAllowance,
        session_id: str,
        scoring: bool,
    ) -> web.StreamResponse:
        """Open the session at a worker once it has one, at another one if that is lost."""
        started = time.monotonic()
        while True:
            try:
                remaining = self._limits.queue_seconds - (time.monotonic() - started)
                valid = max(0.0, claims.expires - time.time())
                link = await self.pool.reserve(session_id, min(remaining, valid), scoring, client.report)
            except Busy as busy:
                self.admission.check(claims)  # a wait ends with its token
                raise Refusal(503, "busy", str(busy), RETRY_AFTER) from busy
            try:
                self.admission.check(claims)
            except InvalidToken:
                self.pool.release(link, session_id)
                raise
            session = WorkerSession(session_id, link, claims.token_id, claims.expires)
            self.pool.sessions[session_id] = session
            self.metrics.waited.observe(time.monotonic() - started)
            response: web.StreamResponse | None = None
            try:
                response = await forward(client.request, session, client.message, account, opening=True)
                if response.status == 503:
                    # The worker was not free after all; it reports when it is.
                    link.ready = False
            finally:
                if response is None or response.status >= 400:
                    await self._end(session, "not opened")
            if response.status in (502, 503) and time.monotonic() - started < self._limits.queue_seconds:
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            if response.status < 400:
                session.is_open = True
                self.metrics.sessions.inc()
            return response

    async def _end(self, session: WorkerSession, cause: str) -> None:
        """End a session, at its worker too; the worker gets new sessions once it reports that it is ready.

        Runs on if the caller is cancelled: a worker that does not learn of the end would stay reserved.
        """
        if self.pool.sessions.pop(session.session_id, None) is None:
            return
        self.metrics.ended.labels(cause).inc()
        self._endings.add(session, cause)
        await asyncio.shield(self._run_in_background(self._close_and_release(session)))

    async def _close_and_release(self, session: WorkerSession) -> None:
        link = session.link
        was_ready, http = link.ready, link.http
        link.ready = was_ready and not link.exclusive
        try:
            async with asyncio.timeout(_END_SECONDS):
                was_open = await self._close(link, session.session_id)
            if not was_open:  # there is nothing to clean
                link.ready = link.ready or was_ready
        except TimeoutError:
            await link.reset(http)  # a worker whose gateway disconnects ends all its sessions
        finally:
            self.pool.release(link, session.session_id)

    async def _close(self, link: WorkerClient, session_id: str) -> bool:
        """End a session at its worker, with retries while it is alive; returns whether the worker knew it. Failures do
        not reset the connection, because the worker may have other sessions.
        """
        while True:
            try:
                async with link.request("DELETE", "/mcp", headers={SESSION_HEADER: session_id}) as answer:
                    return bool(answer.status != 404)
            except (aiohttp.ClientError, OSError):
                if not link.alive:
                    return False
            await asyncio.sleep(_RETRY_SECONDS)

    def _handle_worker_loss(self, link: WorkerClient) -> None:
        self._endings.add_loss(link)
        for session_id in link.sessions:
            if (session := self.pool.sessions.pop(session_id, None)) is not None:
                self.metrics.ended.labels(WORKER_LOST).inc()
                self._endings.add(session, WORKER_LOST)
        sys.stderr.write(f"worker {link.number} was lost with {len(link.sessions)} sessions\n")
        link.sessions.clear()

    def _record_call(self, server: str, outcome: str, seconds: float) -> None:
        self.metrics.calls.labels(server, outcome).inc()
        self.metrics.call_seconds.labels(server).observe(seconds)

    async def _reap(self) -> None:
        while True:
            await asyncio.sleep(min(1.0, self._limits.vanish_seconds, self._limits.idle_seconds))
            now, wall_clock = time.monotonic(), time.time()
            for session in list(self.pool.sessions.values()):
                if wall_clock >= session.expires:
                    self._run_in_background(self._end(session, "expired"))
                elif session.vanished is not None and now - session.vanished > self._limits.vanish_seconds:
                    self._run_in_background(self._end(session, "vanished"))
                elif not session.requests and now - session.last_active > self._limits.idle_seconds:
                    self._run_in_background(self._end(session, "idle"))

    def _run_in_background(self, work: Any) -> "asyncio.Task[None]":
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _is_initialized(message: bytes | AsyncIterator[bytes]) -> bool:
    is_likely = isinstance(message, bytes) and _INITIALIZED in message
    return is_likely and part_of(message, "method") == _INITIALIZED.decode()


def _unauthorized(reason: InvalidToken) -> web.Response:
    return Refusal(401, "token", str(reason), {"WWW-Authenticate": "Bearer"}).response()
