"""A worker's HTTP side, for the gateway alone: MCP at ``/mcp``, the worker's state at ``/state``, and the VNC stream of
its desktop at ``/desktop``.

The gateway chooses the session ids. In a worker for one session at a time, each session is followed by a wipe, after
which it reports that it is ready. If the wipe cannot be verified, or its socket was replaced, the process ends, to be
started again.
"""

import asyncio
import faulthandler
import json
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from aiohttp import web
from aiohttp.typedefs import Handler

from aworld_train.serving.channel import CHECK_HEADER, Channel
from aworld_train.serving.mcp_messages import EVENTS, SESSION_HEADER, json_event, refusal
from aworld_train.serving.worker.cleaning import Cleaner
from aworld_train.serving.worker.desktop import Desktop
from aworld_train.serving.worker.failures import CallFailure
from aworld_train.serving.worker.launcher import EXIT_FOR_RESTART, Spawner
from aworld_train.serving.worker.relay import Relay, RelayedSession
from aworld_train.serving.worker.wipe import NotClean

SERVERS_HEADERS = ("MCP_SERVERS", "MCP-Servers")
MESSAGE_BYTES = 64 << 20
STATE_SECONDS = 2.0
"""How often a worker repeats its state, as a sign of life, when nothing changes."""
HANGS_SECONDS = 30.0
"""A worker whose event loop is blocked for this long is ended, and started again."""
_KEEP_ALIVE_SECONDS = 10.0
_STILL_HERE = b": still here\n\n"


class WorkerSocket:
    """The socket at which the worker is reached; if another file has replaced it, which the gateway does not accept
    (``serving.channel``), the worker ends, to be started again.
    """

    def __init__(self, path: str):
        self.path = Path(path)
        self._identity: tuple[int, int] | None = None

    def clear(self) -> None:
        self.path.unlink(missing_ok=True)

    def remember(self) -> None:
        self._identity = self._look()

    def is_own(self) -> bool:
        return self._identity is not None and self._look() == self._identity

    def _look(self) -> tuple[int, int] | None:
        try:
            status = self.path.lstat()
        except OSError:
            return None
        return status.st_dev, status.st_ino


@dataclass(eq=False)
class Worker:
    """The state behind the routes; without a ``cleaner``, sessions share the worker."""

    relay: Relay
    spawner: Spawner
    cleaner: Cleaner | None
    channel: Channel
    endpoint: WorkerSocket
    desktop: Desktop | None = None
    _ready: bool = False
    _watchers: set[asyncio.Queue[dict[str, Any]]] = field(default_factory=set)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _warming: asyncio.Task[None] | None = None

    def application(self) -> web.Application:
        app = web.Application(client_max_size=MESSAGE_BYTES)
        app.router.add_post("/mcp", self._gateway_only(self.post))
        app.router.add_get("/mcp", self._gateway_only(self.listen))
        app.router.add_delete("/mcp", self._gateway_only(self.delete))
        app.router.add_get("/state", self._gateway_only(self.state))
        if self.desktop is not None:
            app.router.add_get("/desktop", self._gateway_only(self.desktop.watch))
        app.on_startup.append(self._start)
        app.on_cleanup.append(self._stop)
        app.on_response_prepare.append(self._sign)
        return app

    def _gateway_only(self, handler: Handler) -> Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            if not self.channel.is_gateway(request.headers):
                return _refusal(401, "this is for the gateway of this worker alone")
            return await handler(request)

        return handle

    async def _sign(self, request: web.Request, response: web.StreamResponse) -> None:
        response.headers.update(self.channel.response_headers(request.headers))

    async def _start(self, _: web.Application) -> None:
        self._run_in_background(self._prepare())

    async def _stop(self, _: web.Application) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def watch(self) -> None:
        """Watch the worker for as long as it runs: end it if its socket was replaced, or if the event loop hangs."""
        try:
            while True:
                # A thread that does not need the interpreter ends the process unless this call is repeated in time.
                faulthandler.dump_traceback_later(HANGS_SECONDS, exit=True)
                self._check_endpoint()
                await asyncio.sleep(STATE_SECONDS)
        finally:
            faulthandler.cancel_dump_traceback_later()

    def _check_endpoint(self) -> None:
        if not self.endpoint.is_own():
            _end("something else is at the path of its socket")

    async def _prepare(self) -> None:
        await self.spawner.ready()
        await self._wipe()  # so that no session can see whether it is a worker's first
        if self.desktop is not None:
            await self.desktop.start()
        await self.relay.start()
        self._set_ready(True)

    def report(self, server: str, outcome: str, seconds: float) -> None:
        self._broadcast({"call": [server, outcome, round(seconds, 6)]})

    async def state(self, request: web.Request) -> web.StreamResponse:
        """Lines of JSON: whether and how many sessions it takes, repeated as a sign of life, and each tool call."""
        response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
        await response.prepare(request)
        messages: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        messages.put_nowait(self._description())
        self._watchers.add(messages)
        try:
            while True:
                try:
                    line = await asyncio.wait_for(messages.get(), STATE_SECONDS)
                except TimeoutError:
                    line = self._description()
                await response.write(json.dumps(line).encode() + b"\n")
        except ConnectionError:
            return response
        finally:
            self._watchers.discard(messages)
            if not self._watchers:
                self._forget_sessions()

    async def post(self, request: web.Request) -> web.StreamResponse:
        """A message of a client; a request is answered with JSON, or with events if there is progress or a wait."""
        try:
            message = json.loads(await request.read())
        except (ValueError, RecursionError):
            return _refusal(400, "the body is not JSON")
        if not isinstance(message, dict) or isinstance(message.get("id"), dict | list):
            return _refusal(400, "the body has to be one JSON-RPC message")
        session = self.relay.sessions.get(request.headers.get(SESSION_HEADER, ""))
        if session is None:
            if message.get("method") != "initialize":
                return _refusal(404, "no such session")
            if not self._takes_a_session():
                return _refusal(503, "this worker takes no session now")
            try:
                session = self._open(request)
            except CallFailure as failure:
                return web.json_response(
                    {"jsonrpc": "2.0", "id": message.get("id"), "error": failure.to_json()}, status=400
                )
        if "method" in message and "id" in message:
            return await self._answer(request, session, message)
        self.relay.accept_notification(session, message)
        return web.Response(status=202)

    async def listen(self, request: web.Request) -> web.StreamResponse:
        session = self.relay.sessions.get(request.headers.get(SESSION_HEADER, ""))
        if session is None:
            return _refusal(404, "no such session")
        messages: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        session.on_notification = messages.put_nowait
        response = await _events(request)
        while self.relay.sessions.get(session.session_id) is session:
            try:
                await response.write(json_event(await asyncio.wait_for(messages.get(), _KEEP_ALIVE_SECONDS)))
            except TimeoutError:
                await response.write(_STILL_HERE)
        return response

    async def delete(self, request: web.Request) -> web.Response:
        if not self.relay.close(request.headers.get(SESSION_HEADER, "")):
            return _refusal(404, "no such session")
        self._clean_up()
        return web.Response(status=200)

    def _takes_a_session(self) -> bool:
        return self._ready and (self.cleaner is None or not self.relay.sessions)

    def _forget_sessions(self) -> None:
        session_ids = list(self.relay.sessions)
        for session_id in session_ids:
            self.relay.close(session_id)
        if session_ids:
            self._clean_up()

    def _clean_up(self) -> None:
        if self.cleaner is not None:
            self._set_ready(False)
            self._run_in_background(self._clean())

    def _open(self, request: web.Request) -> RelayedSession:
        requested = next((request.headers[name] for name in SERVERS_HEADERS if name in request.headers), "")
        return self.relay.open(
            request.headers[SESSION_HEADER], requested, checking=CHECK_HEADER in request.headers
        )

    async def _answer(
        self, request: web.Request, session: RelayedSession, message: dict[str, Any]
    ) -> web.StreamResponse:
        messages: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        answering = asyncio.ensure_future(self.relay.answer(session, message, messages.put_nowait))
        answering.add_done_callback(lambda _: messages.put_nowait(None))
        response: web.StreamResponse | None = None
        try:
            while True:
                try:
                    progress = await asyncio.wait_for(messages.get(), _KEEP_ALIVE_SECONDS)
                    if progress is None:
                        break
                    line = json_event(progress)
                except TimeoutError:
                    line = _STILL_HERE
                response = response or await _events(request)
                await response.write(line)
            if response is None:
                return web.json_response(answering.result())
            await response.write(json_event(answering.result()))
            return response
        finally:
            answering.cancel()

    async def _clean(self) -> None:
        if self._warming is not None:
            self._warming.cancel()
        ran = self.relay.stop_servers()
        if self.desktop is not None:
            await self.desktop.stop()
        await self._wipe()
        self._check_endpoint()
        if self.desktop is not None:
            await self.desktop.start()
        self._set_ready(True)
        self._warming = self._run_in_background(self.relay.warm(ran))

    async def _wipe(self) -> None:
        try:
            if self.cleaner is not None:
                await self.cleaner.clean()
        except (NotClean, OSError) as error:
            _end(f"it cannot be cleaned: {error}")

    def _set_ready(self, ready: bool) -> None:
        self._ready = ready
        self._broadcast(self._description())

    def _description(self) -> dict[str, Any]:
        return {
            "ready": self._ready,
            "slots": self.relay.manifest.sessions_per_worker,
            "servers": [name for name in self.relay.servers if name not in self.relay.broken],
            "broken": self.relay.broken,
            "starting": self.relay.starting,
        }

    def _broadcast(self, line: dict[str, Any]) -> None:
        for messages in self._watchers:
            messages.put_nowait(line)

    def _run_in_background(self, work: Any) -> "asyncio.Task[None]":
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._check_finished)
        return task

    def _check_finished(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _end(f"{type(error).__name__}: {error}")


def _end(reason: str) -> NoReturn:
    """End this process; its supervisor starts it again, clean."""
    sys.stderr.write(f"This worker ends: {reason}\n")
    os._exit(EXIT_FOR_RESTART)


async def _events(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": EVENTS, "Cache-Control": "no-cache"})
    await response.prepare(request)
    return response


def _refusal(status: int, reason: str) -> web.Response:
    return web.json_response(refusal(reason), status=status)
