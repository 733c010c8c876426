"""Bytes between two connections, both ways, a chunk at a time: a side that does not read holds up the other.

Used twice on the way out: from a worker's loopback to a unix socket, and from there to Squid.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

_CHUNK = 1 << 16
_CONNECT_SECONDS = 10.0
_NO_WAY_OUT = (
    b"HTTP/1.1 503 Service Unavailable\r\nX-Squid-Error: ERR_NO_EGRESS 0\r\nContent-Length: 0\r\n"
    b"Connection: close\r\n\r\n"
)

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Connect = Callable[[], Awaitable[Streams]]


class Forwarder:
    """Answers connections by connecting elsewhere.

    Args:
        connect: Where to.
        max_connections: More at a time are closed at once: who has one socket cannot use up what others need.

    Attributes:
        open: How many there are.
    """

    def __init__(self, connect: Connect, max_connections: int):
        self._connect = connect
        self._max_connections = max_connections
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def open(self) -> int:
        return len(self._tasks)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take one connection to its end."""
        if self.open >= self._max_connections:
            writer.transport.abort()
            return
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._forward(reader, writer)
        except (OSError, asyncio.CancelledError):
            pass  # one side broke off, and so does the other, or all is ended: asyncio logs what is raised
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def close(self) -> None:
        """End all connections."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                far_reader, far_writer = await self._connect()
        except OSError:  # a time-out is one, too
            writer.write(_NO_WAY_OUT)
            writer.write_eof()
            await writer.drain()
            await _until_closed(reader)
            return
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(_copy(reader, far_writer))
                both.create_task(_copy(far_reader, writer))
        except* OSError:
            pass
        finally:
            far_writer.transport.abort()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while chunk := await reader.read(_CHUNK):
        writer.write(chunk)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()


async def _until_closed(reader: asyncio.StreamReader) -> None:
    """Read what still comes, for a moment: a close with unread bytes would take the answer away from the other side."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(1):
            while await reader.read(_CHUNK):
                pass
