"""The gateway's HTTP side: MCP at ``/mcp`` for those with a token, ``/health`` and ``/metrics`` for everybody.

Bodies pass through as they are. What the gateway adds is who may come in, which worker a session has, and an answer
where a worker has none to give any more. At ``/revoke`` it is ordered to refuse a token.
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
from aworld_train.serving.env_gateway.egress import EgressCounts
from aworld_train.serving.env_gateway.exchange import SESSION_HEADER, pass_on
from aworld_train.serving.env_gateway.intake import (
    MAX_MESSAGE_BYTES,
    MAX_OPENING_BYTES,
    Budget,
    ByteAllowance,
    Refusal,
    RequestBody,
    part_of,
)
from aworld_train.serving.env_gateway.link import WorkerLink
from aworld_train.serving.env_gateway.metrics import Metrics
from aworld_train.serving.env_gateway.pool import Busy, Pool, WorkerSession
from aworld_train.serving.tokens import InvalidToken, Pass

PURPOSE_HEADER, SCORING = "Aworld-Purpose", "scoring"
_NO_SCORING = (
    "this environment has no worker for scoring, and answers are not run where agents are: start it with "
    "--scoring-workers 1 (in a recipe: env.scoring_workers=1)"
)
_END_SECONDS = 5.0
_INITIALIZED = b"notifications/initialized"
_RETRY_AFTER = {"Retry-After": "5"}
_AGAIN_SECONDS = 0.05


@dataclass(frozen=True)
class GatewayLimits:
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
        limits: See ``GatewayLimits``.
        revoked: Files in which it remembers which tokens were revoked.
        scoring: How many of the workers, the last, are for scoring alone.
        egress: Where the way out tells its counts; None where there is none.
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
        app = web.Application(middlewares=[self.admission.connections.middleware()])
        app.router.add_get("/health", self.health)
        app.router.add_get("/metrics", self.show_metrics)
        app.router.add_route("*", "/mcp", self.mcp)
        app.router.add_post("/revoke", self.revoke)
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
        if self._egress is not None:
            await self._egress.refresh()
        fine = any(link.proved for link in self.pool.links)
        broken = {name: reason for link in self.pool.links for name, reason in link.broken.items()}
        description = {
            "status": "ok" if fine else "no worker",
            "name": self._name,
            "workers": states,
            "scoring": self.pool.states(scoring=True),
            "egress": self._egress.described() if self._egress else None,
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
        """A request of a client, whatever it is."""
        try:
            allowed = self.admission.admit(request)
            with ByteAllowance(self.budget, allowed.token_id) as account:
                return await self._serve(request, allowed, account)
        except InvalidToken as reason:
            self.metrics.refused.labels("token").inc()
            return _unauthorized(reason)
        except Refusal as refusal:
            self.metrics.refused.labels(refusal.cause).inc()
            return refusal.response()

    async def revoke(self, request: web.Request) -> web.Response:
        """Take a token for revoked, if the order is signed as such: its sessions end, and it is refused."""
        try:
            revocation, is_kept = self.admission.revoke(request)
        except InvalidToken as reason:
            return _unauthorized(reason)
        sessions = [one for one in self.pool.sessions.values() if one.token_id == revocation.token_id]
        await asyncio.gather(*(self._end(session, "revoked") for session in sessions))
        return web.json_response({"sessions": len(sessions), "kept": is_kept})

    async def _serve(self, request: web.Request, allowed: Pass, account: ByteAllowance) -> web.StreamResponse:
        session_id = request.headers.get(SESSION_HEADER)
        if session_id is None:
            return await self._open(request, allowed, account)
        session = self.pool.sessions.get(session_id)
        if session is None or session.token_id != allowed.token_id:
            raise Refusal(404, "session", "there is no such session: it has ended, or was another's")
        if request.method == "DELETE":
            await self._end(session, "closed")
            return web.Response(status=200)
        body = RequestBody(request, account, MAX_MESSAGE_BYTES)
        message = await body.read_or_stream()
        if _is_initialized(message):
            session.last_seen, session.vanished = time.monotonic(), None
            return web.Response(status=202)  # every client has to say so, and no worker has to know
        try:
            response = await pass_on(request, session, message, account)
        finally:
            if request.method == "POST" and self.pool.sessions.get(session_id) is not session:
                # It has ended meanwhile, and what arrived after that may have opened it at the worker once more.
                self._later(self._close(session.link, session_id))
        if body.refusal is not None and not response.prepared:
            raise body.refusal
        return response

    async def _open(self, request: web.Request, allowed: Pass, account: ByteAllowance) -> web.StreamResponse:
        token_id = allowed.token_id
        no_opening = Refusal(
            400, "session", f"the header {SESSION_HEADER} is missing, and this opens no session"
        )
        if request.method != "POST":
            raise no_opening
        open_or_waiting = self.pool.sessions_of(token_id) + self._opening[token_id]
        if allowed.sessions is not None and open_or_waiting >= allowed.sessions:
            raise Refusal(
                429,
                "session_limit",
                f"this token may have {allowed.sessions} sessions at a time",
                _RETRY_AFTER,
            )
        self._opening[token_id] += 1
        try:
            message = await RequestBody(request, account, MAX_OPENING_BYTES).read()
            if b'"initialize"' not in message:
                raise no_opening
            return await self._open_at_worker(request, allowed, message, account)
        finally:
            self._opening[token_id] -= 1
            if not self._opening[token_id]:
                del self._opening[token_id]

    async def _open_at_worker(
        self, request: web.Request, allowed: Pass, message: bytes, account: ByteAllowance
    ) -> web.StreamResponse:
        scoring = request.headers.get(PURPOSE_HEADER) == SCORING
        if scoring and not any(link.scoring for link in self.pool.links):
            raise Refusal(400, "scoring", _NO_SCORING)
        began = time.monotonic()
        while True:
            session_id = secrets.token_hex(16)
            try:
                remaining = self._limits.queue_seconds - (time.monotonic() - began)
                link = await self.pool.reserve(session_id, remaining, scoring)
            except Busy as busy:
                raise Refusal(503, "busy", str(busy), _RETRY_AFTER) from busy
            try:
                self.admission.check(allowed)
            except InvalidToken:
                self.pool.release(link, session_id)
                raise
            session = WorkerSession(session_id, link, allowed.token_id, allowed.expires)
            self.pool.sessions[session_id] = session
            self.metrics.waited.observe(time.monotonic() - began)
            response: web.StreamResponse | None = None
            try:
                response = await pass_on(request, session, message, account, opening=True)
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
                session.is_open = True
                self.metrics.sessions.inc()
            return response

    async def _end(self, session: WorkerSession, cause: str) -> None:
        """End a session at its worker too; its worker is taken for new ones when it says so itself.

        Once begun it is carried through, whoever asked for it: a worker that is not told would be nobody's for ever.
        """
        if self.pool.sessions.pop(session.session_id, None) is None:
            return
        self.metrics.ended.labels(cause).inc()
        await asyncio.shield(self._later(self._take_back(session)))

    async def _take_back(self, session: WorkerSession) -> None:
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
            now, today = time.monotonic(), time.time()
            for session in list(self.pool.sessions.values()):
                if today >= session.expires:
                    self._later(self._end(session, "expired"))
                elif session.vanished is not None and now - session.vanished > self._limits.vanish_seconds:
                    self._later(self._end(session, "vanished"))
                elif not session.requests and now - session.last_seen > self._limits.idle_seconds:
                    self._later(self._end(session, "idle"))

    def _later(self, work: Any) -> "asyncio.Task[None]":
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _is_initialized(message: bytes | AsyncIterator[bytes]) -> bool:
    """Whether it is what a client says when it has seen that its session is open."""
    found = isinstance(message, bytes) and _INITIALIZED in message
    return found and part_of(message, "method") == _INITIALIZED.decode()


def _unauthorized(reason: InvalidToken) -> web.Response:
    return Refusal(401, "token", str(reason), {"WWW-Authenticate": "Bearer"}).response()
