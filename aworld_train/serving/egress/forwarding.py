"""Bytes between two connections, both ways, a chunk at a time: a side that does not read holds up the other.

Used twice on the way out: from a worker's loopback to a unix socket, and from there to Squid.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

_CHUNK = 1 << 16
_CONNECT_SECONDS = 10.0
_STALL_SECONDS = 120.0
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
        """End all connections; new ones are taken all the same."""
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
            await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))
            await _until_closed(reader)
        finally:
            far_writer.transport.abort()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One direction, to its end; where one side breaks off, so does the other.

    A side that takes nothing for `_STALL_SECONDS` is given up: that the other one has gone cannot be seen meanwhile.
    """
    writer.transport.set_write_buffer_limits(0)  # what `drain` has waited for has left this process
    try:
        while chunk := await reader.read(_CHUNK):
            writer.write(chunk)
            async with asyncio.timeout(_STALL_SECONDS):
                await writer.drain()
        writer.write_eof()
    except OSError:  # a time-out is one, too
        writer.transport.abort()


async def _until_closed(reader: asyncio.StreamReader) -> None:
    """Read what still comes, for a moment: a close with unread bytes would take the answer away from the other side."""
    with contextlib.suppress(OSError):  # a time-out is one, too
        async with asyncio.timeout(1):
            while await reader.read(_CHUNK):
                pass
