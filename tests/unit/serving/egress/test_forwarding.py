"""Bytes between two connections arrive, all of them, whoever ends first; one socket takes no more than its share."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from aworld_train.serving.egress import forwarding
from aworld_train.serving.egress.forwarding import Forwarder
from aworld_train.serving.worker.egress import proxy_port

SECONDS = 20.0
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def forwarded(handler: Handler, max_connections: int = 10) -> AsyncIterator[tuple[Forwarder, int]]:
    """A forwarder to a server of that kind, and its port."""
    far = await asyncio.start_server(handler, "127.0.0.1", 0)
    far_port = far.sockets[0].getsockname()[1]
    forwarder = Forwarder(lambda: asyncio.open_connection("127.0.0.1", far_port), max_connections)
    near = await asyncio.start_server(forwarder.serve, "127.0.0.1", 0)
    try:
        async with asyncio.timeout(SECONDS):
            yield forwarder, near.sockets[0].getsockname()[1]
    finally:
        near.close()
        far.close()
        await forwarder.close()


async def until(holds: Callable[[], bool]) -> None:
    """Wait for it; the time limit is that of `forwarded`."""
    while True:
        if holds():
            return
        await asyncio.sleep(0.01)


async def test_what_was_sent_before_the_end_arrives_however_late_it_is_read() -> None:
    size = 4 << 20

    async def send_and_end(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(bytes(size))
        await writer.drain()
        writer.close()

    async with forwarded(send_and_end) as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 14)
        received = 0
        while chunk := await reader.read(1 << 14):
            received += len(chunk)
            await asyncio.sleep(0.001)
        assert received == size
        writer.close()


async def test_each_direction_ends_by_itself() -> None:
    async def answer_at_the_end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"%d" % len(await reader.read()))
        writer.close()

    async with forwarded(answer_at_the_end) as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(bytes(1 << 20))
        writer.write_eof()
        assert await reader.read() == b"%d" % (1 << 20)
        writer.close()


async def test_an_answer_that_comes_before_the_end_of_the_question_arrives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(forwarding, "_LINGER_SECONDS", SECONDS)
    answered = asyncio.Event()

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 403 Forbidden\r\n\r\n")
        writer.write_eof()
        await answered.wait()
        writer.transport.abort()

    async with forwarded(refuse) as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(bytes(8 << 20))  # nobody reads most of it
        assert (await reader.readline()).startswith(b"HTTP/1.1 403")
        answered.set()
        await writer.drain()
        assert await reader.read() == b"\r\n"
        writer.transport.abort()


async def test_a_connection_that_takes_nothing_more_is_ended_and_so_are_all_where_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended = asyncio.Event()

    async def never_read(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        await ended.wait()
        writer.transport.abort()

    async with forwarded(never_read) as (forwarder, port):
        _, idle = await asyncio.open_connection("127.0.0.1", port)
        await until(lambda: forwarder.open >= 1)
        monkeypatch.setattr(forwarding, "_STALL_SECONDS", 0.2)
        _, stalled = await asyncio.open_connection("127.0.0.1", port)
        stalled.write(bytes(8 << 20))
        await until(lambda: forwarder.open >= 2)
        await until(lambda: forwarder.open <= 1)
        await forwarder.close()
        assert forwarder.open == 0
        ended.set()
        for writer in (idle, stalled):
            writer.transport.abort()


async def test_more_connections_than_allowed_are_closed_and_places_become_free() -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(100):
            writer.write(chunk)
        writer.close()

    async with forwarded(echo, max_connections=2) as (forwarder, port):
        opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        for reader, writer in opened:
            writer.write(b"x")
            assert await reader.readexactly(1) == b"x"
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        writer.close()
        opened[0][1].close()
        await until(lambda: forwarder.open < 2)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"y")
        assert await reader.readexactly(1) == b"y"
        for _, one in (*opened, (reader, writer)):
            one.close()


async def test_connections_end_on_both_sides_when_the_forwarder_is_closed() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def read_all(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            await reader.read(1)
            begun.set()
            await reader.read()
        ended.set()
        writer.close()

    async with forwarded(read_all) as (forwarder, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"x")
        await begun.wait()
        await forwarder.close()
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        await ended.wait()
        writer.close()


async def test_where_there_is_no_egress_a_client_is_told_whatever_it_still_sends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(forwarding, "_LINGER_SECONDS", SECONDS)

    def ask(client: socket.socket) -> bytes:
        client.settimeout(SECONDS)
        client.sendall(b"GET http://example.org/ HTTP/1.1\r\n\r\n" + bytes(4 << 20))
        return b"".join(iter(lambda: client.recv(1000), b""))

    async with asyncio.timeout(SECONDS), proxy_port("/nowhere/egress.sock", port=0) as proxy:
        with socket.create_connection(("127.0.0.1", proxy.port)) as client:
            answer = await asyncio.to_thread(ask, client)
    assert answer.startswith(b"HTTP/1.1 503 Service Unavailable\r\nX-Squid-Error: ERR_NO_EGRESS")


async def test_a_port_that_is_taken_is_an_error() -> None:
    async with proxy_port("/nowhere/egress.sock", port=0) as proxy:
        with pytest.raises(OSError, match="address already in use"):
            async with proxy_port("/nowhere/egress.sock", port=proxy.port):
                pass
