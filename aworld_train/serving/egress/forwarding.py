"""Forwards bytes between two connections, both ways, in chunks: a side that does not read slows the other down."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

_CHUNK = 1 << 16
_CONNECT_SECONDS = 10.0
_STALL_SECONDS = 120.0
_LINGER_SECONDS = 1.0
_NO_WAY_OUT = (
    b"HTTP/1.1 503 Service Unavailable\r\nX-Squid-Error: ERR_NO_EGRESS 0\r\nContent-Length: 0\r\n"
    b"Connection: close\r\n\r\n"
)

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Connect = Callable[[], Awaitable[Streams]]


class Forwarder:
    """Forwards each connection to a new connection of its own; those beyond ``max_connections`` are closed at once."""

    def __init__(self, connect: Connect, max_connections: int):
        self._connect = connect
        self._max_connections = max_connections
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def open(self) -> int:
        return len(self._tasks)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.open >= self._max_connections:
            writer.transport.abort()
            return
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._forward(reader, writer)
        except (OSError, asyncio.CancelledError):
            pass  # either side broke off, or `close` was called; asyncio would log the exception
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def close(self) -> None:
        """End all connections; new ones are still accepted."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                far_reader, far_writer = await self._connect()
        except OSError:  # TimeoutError included
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
    """Copy one direction until it ends; if one side breaks off, the other is closed.

    A side that accepts no data for `_STALL_SECONDS` is closed: until it does, the end of the other side goes unnoticed.
    """
    writer.transport.set_write_buffer_limits(0)  # `drain` returns when all bytes have left this process
    try:
        while chunk := await reader.read(_CHUNK):
            writer.write(chunk)
            async with asyncio.timeout(_STALL_SECONDS):
                await writer.drain()
        writer.write_eof()
    except OSError:  # TimeoutError included
        writer.transport.abort()


async def _until_closed(reader: asyncio.StreamReader) -> None:
    """Read the remaining bytes for a moment: closing with unread bytes would reset the connection and lose data."""
    with contextlib.suppress(OSError):  # TimeoutError included
        async with asyncio.timeout(_LINGER_SECONDS):
            while await reader.read(_CHUNK):
                pass
