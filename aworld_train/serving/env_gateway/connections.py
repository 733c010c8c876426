"""The connections of clients: how many there may be, how long each may keep the gateway waiting, and what is logged.

A connection counts for its address until it has shown a valid token, and for that token from then on: a trainer has a
thousand of them, a stranger has no use for that many. Where one has too many, the one that was quiet for longest is
closed. A request has to have arrived, up to its body, within ``HEAD_SECONDS``. Bodies are the matter of ``intake``.
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

from aworld_train.serving.env_gateway.intake import READ_BYTES, limit_reads

HEAD_SECONDS = 10.0
"""For the head of a request; a connection without a token may also be idle for this long and no longer."""
MAX_CONNECTIONS = 4096
MAX_OF_ADDRESS = 2048
MAX_OF_TOKEN = 3072
_WATCH_SECONDS = 0.5
_KEPT_SECONDS = 3630.0  # longer than the proxies of this world keep theirs
_LINGER_SECONDS = 5.0
_BACKLOG = 4096  # clients that connect at the same moment
_LINE_BYTES = 8190
_MAX_HEADERS = 64


class Connection(web.RequestHandler):
    """One client's connection.

    Attributes:
        holder: For whom it counts: an address, or a token.
        busy: Whether a request is being answered.
        deadline: When it is closed if no request has arrived (loop's clock); None where there is no hurry.
        expires: Until when its token is valid (Unix time, seconds); None where it has shown none.
    """

    def __init__(self, server: web.Server, connections: "Connections"):
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            access_log=None,  # type: ignore[arg-type]
            auto_decompress=False,
            keepalive_timeout=_KEPT_SECONDS,
            lingering_time=_LINGER_SECONDS,
            max_field_size=_LINE_BYTES,
            max_headers=_MAX_HEADERS,
            max_line_size=_LINE_BYTES,
            read_bufsize=READ_BYTES // 2,
        )
        self._connections = connections
        self._content: Any = None  # of the request before
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
        # What is left of a body that nobody reads is not the beginning of a request.
        if (
            data
            and self.deadline is None
            and not self.busy
            and (self._content is None or self._content.is_eof())
        ):
            self.deadline = self._loop.time() + HEAD_SECONDS
        super().data_received(data)

    def begin(self) -> None:
        """A request has arrived."""
        self.busy, self.deadline = True, None

    def finish(self, request: web.BaseRequest) -> None:
        """It has been answered."""
        self.busy, self._content = False, request.content
        if self.expires is None:
            self.deadline = self._loop.time() + HEAD_SECONDS

    def end(self) -> None:
        """Close it, whatever it is doing."""
        if self.transport is not None:
            self.transport.abort()

    def log_exception(self, *args: Any, **kw: Any) -> None:
        """What failed and where, without the text of the error: it may repeat a header, and with that a token.

        That a client is gone is no failure.
        """
        error = kw.get("exc_info")
        if isinstance(error, HttpProcessingError):
            self.logger.warning("what came from %s is not HTTP: %s", self._address, type(error).__name__)
        elif isinstance(error, BaseException) and not isinstance(error, ConnectionError):
            places = "".join(traceback.format_tb(error.__traceback__))
            self.logger.error("a request from %s failed: %s\n%s", self._address, type(error).__name__, places)


class Connections:
    """All of them."""

    def __init__(self) -> None:
        # Dictionaries as sets that are in order: the oldest comes first.
        self._all: dict[Connection, None] = {}
        self._strangers: dict[Connection, None] = {}
        self._held: dict[tuple[str, str], dict[Connection, None]] = {}

    def __len__(self) -> int:
        return len(self._all)

    def add(self, connection: Connection) -> None:
        """A new one."""
        self._all[connection] = self._strangers[connection] = None
        self._hold(connection)
        if len(self._held[connection.holder]) > MAX_OF_ADDRESS:
            self._end_one(self._held[connection.holder])
        elif len(self._all) > MAX_CONNECTIONS:
            self._end_one(self._strangers)

    def remove(self, connection: Connection) -> None:
        """One that was closed."""
        self._all.pop(connection, None)
        self._strangers.pop(connection, None)
        held = self._held.get(connection.holder, {})
        held.pop(connection, None)
        if not held:
            self._held.pop(connection.holder, None)

    def trust(self, connection: Connection, token_id: str, expires: float) -> bool:
        """It has shown a valid token, for which it counts now; whether that may have it."""
        holder = ("token", token_id)
        connection.expires = expires
        if connection.holder == holder:
            return True
        self.remove(connection)
        self._all[connection] = None
        connection.holder = holder
        self._hold(connection)
        held = self._held[holder]
        return len(held) <= MAX_OF_TOKEN or self._end_one(held)

    def distrust(self, token_id: str) -> None:
        """The token is valid no more."""
        for connection in list(self._held.get(("token", token_id), ())):
            self._let_go(connection)

    async def watch(self) -> None:
        """Close those whose time is over, for ever."""
        while True:
            await asyncio.sleep(_WATCH_SECONDS)
            now, today = asyncio.get_running_loop().time(), time.time()
            for connection in list(self._all):
                if connection.deadline is not None and now > connection.deadline:
                    connection.end()
                elif connection.expires is not None and today > connection.expires:
                    self._let_go(connection)

    def middleware(self) -> Middleware:
        """What tells a connection of its requests."""

        @web.middleware
        async def note(request: web.Request, handler: Handler) -> web.StreamResponse:
            connection = request.protocol
            if not isinstance(connection, Connection):
                return await handler(request)
            connection.begin()
            try:
                return await handler(request)
            finally:
                connection.finish(request)

        return note

    def _hold(self, connection: Connection) -> None:
        self._held.setdefault(connection.holder, {})[connection] = None

    def _let_go(self, connection: Connection) -> None:
        """Close it, but not before its request has been answered."""
        if connection.busy:
            connection.close()
        else:
            connection.end()

    def _end_one(self, among: dict[Connection, None]) -> bool:
        """Close the oldest one that does nothing; whether there was one."""
        for connection in among:
            if not connection.busy:
                self.remove(connection)
                connection.end()
                return True
        return False


@asynccontextmanager
async def listening(
    app: web.Application, connections: Connections, host: str, port: int
) -> AsyncIterator[int]:
    """Serve the application for as long as this is open; the port."""
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
