"""The connections of clients: how many there may be, how long a request may take to arrive, and what is logged.

A connection counts for its address until it shows a valid token, and for that token from then on: a trainer needs a
thousand connections. If an address or token has too many, its oldest idle one is closed.
"""

import asyncio
import time
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Handler, Middleware

from aworld_train.serving.env_gateway.request_limits import READ_BYTES, limit_reads

HEAD_SECONDS = 10.0
"""Limit for the head of a request; also the longest idle time of a connection without a token."""
MAX_CONNECTIONS = 4096
MAX_PER_ADDRESS = 2048
MAX_PER_TOKEN = 3072
_WATCH_SECONDS = 0.5
_KEEP_ALIVE_SECONDS = 3630.0  # longer than common proxies keep theirs
_LINGER_SECONDS = 5.0
_BACKLOG = 4096  # clients that connect at the same moment
_LINE_BYTES = 8190
_MAX_HEADERS = 64


class Connection(web.RequestHandler):
    """One client's connection, which counts for its ``holder``: an address or a token.

    It is closed if no request has arrived by its ``deadline`` (loop's clock), or when its token ``expires`` (Unix
    time).
    """

    def __init__(self, server: web.Server, connections: "Connections"):
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            access_log=None,  # type: ignore[arg-type]
            auto_decompress=False,
            keepalive_timeout=_KEEP_ALIVE_SECONDS,
            lingering_time=_LINGER_SECONDS,
            max_field_size=_LINE_BYTES,
            max_headers=_MAX_HEADERS,
            max_line_size=_LINE_BYTES,
            read_bufsize=READ_BYTES // 2,
        )
        self._connections = connections
        self._content: Any = None  # of the previous request
        self._address = ""
        self.holder = ("address", "")
        self.busy = False
        self.deadline: float | None = None
        self.expires: float | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        limit_reads(transport, READ_BYTES)
        peer = transport.get_extra_info("peername")
        self._address = str(peer[0]) if peer else ""
        self.holder = ("address", self._address)
        self.deadline = self._loop.time() + HEAD_SECONDS
        self._connections.add(self)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._connections.remove(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        # The rest of a body that was not read is not the beginning of a request.
        is_read = self._content is None or self._content.is_eof()
        if data and self.deadline is None and not self.busy and is_read:
            self.deadline = self._loop.time() + HEAD_SECONDS
        super().data_received(data)

    def begin_request(self) -> None:
        self.busy, self.deadline = True, None

    def finish_request(self, request: web.BaseRequest) -> None:
        self.busy, self._content = False, request.content
        if self.expires is None:
            self.deadline = self._loop.time() + HEAD_SECONDS

    def end(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    def log_exception(self, *args: Any, **kw: Any) -> None:
        """Log an error's type and place without its text, which may contain a token. A client may disconnect."""
        error = kw.get("exc_info")
        if isinstance(error, HttpProcessingError):
            self.logger.warning("what came from %s is not HTTP: %s", self._address, type(error).__name__)
        elif isinstance(error, BaseException) and not isinstance(error, ConnectionError):
            stack = "".join(traceback.format_tb(error.__traceback__))
            self.logger.error("a request from %s failed: %s\n%s", self._address, type(error).__name__, stack)


class Connections:
    def __init__(self) -> None:
        # Dictionaries as ordered sets: the oldest comes first.
        self._all: dict[Connection, None] = {}
        self._without_token: dict[Connection, None] = {}
        self._by_holder: dict[tuple[str, str], dict[Connection, None]] = {}

    def __len__(self) -> int:
        return len(self._all)

    def add(self, connection: Connection) -> None:
        self._all[connection] = self._without_token[connection] = None
        self._count_for_holder(connection)
        if len(self._by_holder[connection.holder]) > MAX_PER_ADDRESS:
            self._close_oldest_idle(self._by_holder[connection.holder])
        elif len(self._all) > MAX_CONNECTIONS:
            self._close_oldest_idle(self._without_token)

    def remove(self, connection: Connection) -> None:
        self._all.pop(connection, None)
        self._without_token.pop(connection, None)
        same_holder = self._by_holder.get(connection.holder, {})
        same_holder.pop(connection, None)
        if not same_holder:
            self._by_holder.pop(connection.holder, None)

    def assign_to_token(self, connection: Connection, token_id: str, expires: float) -> bool:
        """Count a connection for its valid token from now on; returns False if the token has too many."""
        holder = ("token", token_id)
        connection.expires = expires
        if connection.holder == holder:
            return True
        self.remove(connection)
        self._all[connection] = None
        connection.holder = holder
        self._count_for_holder(connection)
        same_holder = self._by_holder[holder]
        return len(same_holder) <= MAX_PER_TOKEN or self._close_oldest_idle(same_holder)

    def close_all_of_token(self, token_id: str) -> None:
        for connection in list(self._by_holder.get(("token", token_id), ())):
            self._close_when_idle(connection)

    async def watch(self) -> None:
        while True:
            await asyncio.sleep(_WATCH_SECONDS)
            now, wall_clock = asyncio.get_running_loop().time(), time.time()
            for connection in list(self._all):
                if connection.deadline is not None and now > connection.deadline:
                    connection.end()
                elif connection.expires is not None and wall_clock > connection.expires:
                    self._close_when_idle(connection)

    def middleware(self) -> Middleware:
        @web.middleware
        async def track(request: web.Request, handler: Handler) -> web.StreamResponse:
            connection = request.protocol
            if not isinstance(connection, Connection):
                return await handler(request)
            connection.begin_request()
            try:
                return await handler(request)
            finally:
                connection.finish_request(request)

        return track

    def _count_for_holder(self, connection: Connection) -> None:
        self._by_holder.setdefault(connection.holder, {})[connection] = None

    def _close_when_idle(self, connection: Connection) -> None:
        if connection.busy:
            connection.close()
        else:
            connection.end()

    def _close_oldest_idle(self, connections: dict[Connection, None]) -> bool:
        for connection in connections:
            if not connection.busy:
                self.remove(connection)
                connection.end()
                return True
        return False


@asynccontextmanager
async def listening(
    app: web.Application, connections: Connections, host: str, port: int
) -> AsyncIterator[int]:
    """Serve the application until the block ends; yields the port."""
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=1)
    await runner.setup()
    loop = asyncio.get_running_loop()
    server = runner.server
    assert server is not None
    listener = await loop.create_server(lambda: Connection(server, connections), host, port, backlog=_BACKLOG)
    watching = asyncio.create_task(connections.watch())
    try:
        yield int(listener.sockets[0].getsockname()[1])
    finally:
        watching.cancel()
        listener.close()
        await runner.cleanup()
