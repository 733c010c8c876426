"""Connections that show no token are few and short, those with one are left alone; nothing of a head is logged."""

import asyncio
import gzip
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from aworld_train.serving.env_gateway import connections, desktop, request_limits
from aworld_train.serving.env_gateway.app import Gateway, GatewayLimits
from aworld_train.serving.env_gateway.connections import Connection, Connections, listening
from aworld_train.serving.env_gateway.desktop import PREFIX, DesktopPages
from aworld_train.serving.env_gateway.request_limits import READ_BYTES
from aworld_train.serving.tokens import new_secret, sign

SECRET = new_secret()
WITHIN = 20.0
SHORT = 0.5
LONG = 4 * SHORT


@pytest.fixture(autouse=True)
def short_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD_SECONDS", SHORT)
    monkeypatch.setattr(connections, "_WATCH_SECONDS", 0.05)
    monkeypatch.setattr(connections, "_LINGER_SECONDS", SHORT)
    monkeypatch.setattr(request_limits, "STALL_SECONDS", SHORT)


@asynccontextmanager
async def gateway(pages: web.Application | None = None) -> AsyncIterator[tuple[Gateway, int]]:
    """A gateway without workers, and its port."""
    served = Gateway("name", SECRET, [], GatewayLimits(queue_seconds=0.1))
    app = served.application()
    if pages is not None:
        app.add_subapp(PREFIX, pages)
    async with (
        asyncio.timeout(WITHIN),
        listening(app, served.admission.connections, "127.0.0.1", 0) as port,
    ):
        yield served, port


def token(token_id: str = "t") -> bytes:
    now = int(time.time())
    return sign(SECRET, "name", issued=now, expires=now + 600, token_id=token_id).encode()


def head(*lines: bytes, method: bytes = b"POST", path: bytes = b"/mcp") -> bytes:
    return b"\r\n".join([method + b" " + path + b" HTTP/1.1", b"Host: x", *lines, b"", b""])


def authorized(*lines: bytes, shown: bytes = b"") -> bytes:
    return head(b"Authorization: Bearer " + (shown or token()), *lines)


class Client:
    """A connection, byte by byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        self._reader, self._writer = reader, writer

    @classmethod
    async def connect(cls, port: int) -> "Client":
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def status(self) -> int:
        """Of the next response, which is read to its end."""
        lines = (await self._reader.readuntil(b"\r\n\r\n")).lower().splitlines()
        length = next(int(line.partition(b":")[2]) for line in lines if line.startswith(b"content-length:"))
        await self._reader.readexactly(length)
        return int(lines[0].split()[1])

    async def is_closed(self, within: float = WITHIN) -> bool:
        """Whether the other side closes it, without a response, in that time."""
        try:
            async with asyncio.timeout(within):
                return await self._reader.read(1) == b""
        except ConnectionError:
            return True
        except TimeoutError:
            return False


@pytest.mark.parametrize("sent", [b"", b"POST /mcp HT", head(b"X: y")[:-2], b"\r\n\r\n"])
async def test_a_connection_that_sends_no_whole_head_is_closed(sent: bytes) -> None:
    async with gateway() as (served, port):
        client = await Client.connect(port)
        await client.send(sent)
        assert await client.is_closed()
        assert len(served.admission.connections) == 0


async def test_a_head_that_comes_drop_by_drop_is_closed_too() -> None:
    async with gateway() as (_, port):
        client = await Client.connect(port)
        closed = asyncio.create_task(client.is_closed())
        for byte in head(b"X: " + b"y" * 5000):
            if closed.done():
                break
            try:
                await client.send(bytes([byte]))
            except ConnectionError:
                break
            await asyncio.sleep(SHORT / 20)
        assert await closed


async def test_a_connection_without_a_token_is_not_kept_and_one_with_a_token_is() -> None:
    async with gateway() as (_, port):
        stranger, with_token = await Client.connect(port), await Client.connect(port)
        await stranger.send(head(method=b"GET", path=b"/health"))
        await with_token.send(authorized(b"Mcp-Session-Id: none", b"Content-Length: 0"))
        assert (await stranger.status(), await with_token.status()) == (503, 404)
        assert await stranger.is_closed()
        assert not await with_token.is_closed(LONG)
        await with_token.send(authorized(b"Content-Length: 0")[:-1])
        assert await with_token.is_closed()


async def test_a_body_that_was_not_read_does_not_make_its_connection_look_slow() -> None:
    async with gateway() as (_, port):
        client = await Client.connect(port)
        await client.send(authorized(b"Mcp-Session-Id: none", b"Content-Length: 2"))
        assert await client.status() == 404
        await client.send(b"{}")
        assert not await client.is_closed(LONG)
        await client.send(authorized(b"Mcp-Session-Id: none", b"Content-Length: 0"))
        assert await client.status() == 404


@pytest.mark.parametrize("framing", [b"Content-Length: 1000000", b"Transfer-Encoding: chunked"])
async def test_a_body_that_stalls_is_answered_and_its_connection_closed(framing: bytes) -> None:
    async with gateway() as (served, port):
        client = await Client.connect(port)
        await client.send(authorized(framing) + (b"5\r\n12345\r\n" if b"chunked" in framing else b"12345"))
        assert await client.status() == 408
        assert await client.is_closed()
        assert served.budget.used == 0


async def test_a_body_that_comes_too_slowly_is_answered_though_it_never_stalls() -> None:
    async with gateway() as (_, port):
        client = await Client.connect(port)
        await client.send(authorized(b"Content-Length: 1000000"))
        answer = asyncio.create_task(client.status())
        while not answer.done():
            await client.send(b"x" * 10)
            await asyncio.sleep(SHORT / 10)
        assert await answer == 408


async def test_a_body_that_pauses_but_is_fast_enough_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_limits, "MIN_RATE", 100)
    monkeypatch.setattr(request_limits, "STALL_SECONDS", WITHIN)
    async with gateway() as (_, port):
        client = await Client.connect(port)
        await client.send(authorized(b"Content-Length: 4000"))
        for _ in range(4):
            await client.send(b"x" * 1000)
            await asyncio.sleep(SHORT / 2)
        assert await client.status() == 400  # it opens no session


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        ((b"Content-Length: 1048577",), 413),
        ((b"Content-Length: 999999999999",), 413),
        ((b"Mcp-Session-Id: none", b"Content-Length: 67108865"), 404),
        ((b"Content-Length: 10", b"Content-Encoding: gzip"), 415),
    ],
)
async def test_a_body_is_refused_by_what_its_head_says(lines: tuple[bytes, ...], status: int) -> None:
    async with gateway() as (served, port):
        client = await Client.connect(port)
        await client.send(authorized(*lines))
        assert await client.status() == status
        assert served.budget.used == 0


async def test_an_opening_that_turns_out_to_be_too_long_is_refused() -> None:
    async with gateway() as (_, port):
        client = await Client.connect(port)
        await client.send(authorized(b"Transfer-Encoding: chunked"))
        chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
        answer = asyncio.create_task(client.status())
        for _ in range(17):
            await client.send(chunk)
        assert await answer == 413


# Numbers


async def test_an_address_has_so_many_connections_without_a_token_and_the_oldest_goes_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "HEAD_SECONDS", WITHIN)
    monkeypatch.setattr(connections, "MAX_PER_ADDRESS", 10)
    async with gateway() as (served, port):
        clients = [await Client.connect(port) for _ in range(15)]
        assert [await client.is_closed(WITHIN) for client in clients[:5]] == [True] * 5
        assert len(served.admission.connections) == 10
        for client in clients[5:]:
            await client.send(authorized(b"Mcp-Session-Id: none", b"Content-Length: 0"))
            assert await client.status() == 404
        # They count for their token now: there is room for others.
        others = [await Client.connect(port) for _ in range(10)]
        assert not await others[0].is_closed(SHORT)
        assert len(served.admission.connections) == 20


async def test_strangers_do_not_take_the_place_of_those_with_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD_SECONDS", WITHIN)
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 10)
    async with gateway() as (served, port):
        with_token = await Client.connect(port)
        await with_token.send(authorized(b"Mcp-Session-Id: none", b"Content-Length: 0"))
        assert await with_token.status() == 404
        strangers = [await Client.connect(port) for _ in range(30)]
        assert await strangers[0].is_closed()
        assert len(served.admission.connections) == 10
        await with_token.send(authorized(b"Mcp-Session-Id: none", b"Content-Length: 0"))
        assert await with_token.status() == 404
        newcomer = await Client.connect(port)
        await newcomer.send(authorized(b"Mcp-Session-Id: none", b"Content-Length: 0"))
        assert await newcomer.status() == 404


async def test_a_thousand_clients_of_one_address_come_in_at_the_same_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The first ones send their head when the last ones are connected, which takes a busy machine seconds.
    monkeypatch.setattr(connections, "HEAD_SECONDS", 120.0)
    async with gateway() as (served, port):
        clients = await asyncio.gather(*(Client.connect(port) for _ in range(1000)))
        shown = token()
        request = authorized(b"Mcp-Session-Id: none", b"Content-Length: 0", shown=shown)
        await asyncio.gather(*(client.send(request) for client in clients))
        assert {await client.status() for client in clients} == {404}
        assert len(served.admission.connections) == 1000


async def test_connections_end_with_their_token() -> None:
    for seconds in (1, 4, 16, 64):
        async with gateway() as (_, port):
            now = int(time.time())
            # Clocks may differ by five seconds.
            shown = sign(SECRET, "name", issued=now, expires=now - 5 + seconds).encode()
            client = await Client.connect(port)
            await client.send(authorized(b"Mcp-Session-Id: none", b"Content-Length: 0", shown=shown))
            status = await client.status()
            # On a busy machine the token is over before it is looked at: another one lasts longer.
            if status == 401:
                continue
            assert status == 404
            assert await client.is_closed()
            return
    raise AssertionError("no token was taken")


class Peer(Connection):
    """A connection without a socket, which notes how it is closed."""

    def __init__(self, connections: Connections, address: str = "a", busy: bool = False):
        super().__init__(web.Server(lambda _: web.Response()), connections)  # type: ignore[arg-type, return-value]
        self.holder, self.busy, self.closed = ("address", address), busy, ""
        connections.add(self)

    def end(self) -> None:
        self.closed = "at once"

    def close(self) -> None:
        self.closed = "after its response"


async def test_a_token_with_too_many_connections_loses_its_oldest_idle_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "MAX_PER_TOKEN", 3)
    everyone = Connections()
    peers = [Peer(everyone, busy=busy) for busy in (True, False, False, True, True, True)]
    assert [everyone.assign_to_token(peer, "t", 7.0) for peer in peers] == [True] * 5 + [False]
    assert [peer.closed for peer in peers] == ["", "at once", "at once", "", "", ""]
    assert {peer.expires for peer in peers} == {7.0}
    # What it has shown before is what it counts for already, and another token is a token of its own.
    assert everyone.assign_to_token(peers[0], "t", 8.0) and peers[0].expires == 8.0
    assert everyone.assign_to_token(peers[0], "other", 9.0) and len(everyone) == 4


async def test_a_connection_that_is_gone_is_not_counted_anywhere() -> None:
    everyone = Connections()
    peers = [Peer(everyone), Peer(everyone), Peer(everyone, "b")]
    everyone.assign_to_token(peers[0], "t", 7.0)
    for left, peer in ((2, peers[0]), (1, peers[1]), (0, peers[2]), (0, peers[2])):
        everyone.remove(peer)
        assert len(everyone) == left
    assert (everyone._by_holder, everyone._without_token) == ({}, {})


async def test_the_connections_of_a_revoked_token_are_closed_and_those_in_use_after_their_response() -> None:
    everyone = Connections()
    peers = [Peer(everyone), Peer(everyone, busy=True), Peer(everyone)]
    for peer, token_id in zip(peers, ("bad", "bad", "good"), strict=True):
        everyone.assign_to_token(peer, token_id, 7.0)
    everyone.close_all_of_token("bad")
    everyone.close_all_of_token("unknown")
    assert [peer.closed for peer in peers] == ["at once", "after its response", ""]


async def test_what_is_late_is_closed_at_once_and_a_token_that_ends_lets_a_request_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "_WATCH_SECONDS", 0.0)
    everyone, now = Connections(), asyncio.get_running_loop().time()
    late, in_time, ended, ended_busy, valid = (
        Peer(everyone, busy=busy) for busy in (False, False, False, True, False)
    )
    late.deadline, in_time.deadline = now - 1, now + 600
    ended.expires = ended_busy.expires = time.time() - 1
    valid.expires = time.time() + 600
    watching = asyncio.create_task(everyone.watch())
    await asyncio.sleep(0.01)
    watching.cancel()
    closed = [peer.closed for peer in (late, in_time, ended, ended_busy, valid)]
    assert closed == ["at once", "", "at once", "after its response", ""]


async def test_a_client_that_goes_away_ends_its_request_and_the_end_of_all_ends_its_connection() -> None:
    begun, cancelled = asyncio.Event(), asyncio.Event()

    async def wait(request: web.Request) -> web.Response:
        seen.append((request.content.get_read_buffer_limits(), request.protocol))
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return web.Response()

    seen: list[tuple[object, object]] = []
    everyone, app = Connections(), web.Application()
    app.middlewares.append(everyone.middleware())
    app.router.add_post("/mcp", wait)
    tasks = asyncio.all_tasks()
    async with asyncio.timeout(WITHIN):
        async with listening(app, everyone, "127.0.0.1", 0) as port:
            client, idle = await Client.connect(port), await Client.connect(port)
            await client.send(head(b"Content-Length: 1"))
            await begun.wait()
            ((limits, connection),) = seen
            assert isinstance(connection, Connection) and connection.transport is not None
            assert (connection.busy, connection.deadline) == (True, None)
            assert (limits, connection.holder) == ((READ_BYTES // 2, READ_BYTES), ("address", "127.0.0.1"))
            assert connection.transport.max_size == READ_BYTES  # type: ignore[attr-defined]
            client._writer.close()
            await cancelled.wait()
        assert await idle.is_closed() and len(everyone) == 0
        with pytest.raises(ConnectionError):
            await Client.connect(port)
    assert asyncio.all_tasks() == tasks


# What is shown


SHOWN = [
    b"",
    b"Bearer",
    b"Bearer ",
    b"Bearer \xff\xfe\xfd",
    b"Bearer \xc3\xa9\xe6\xbc\xa2",
    b"\xff\xff",
    b"Bearer " + b"x" * 8000,
    b"Bearer a.b.c",
    b"Bearer eyJ\xff.eyJ.x",
    b"Bearer " + b"W1tb" * 1500 + b".e30.e30",  # JSON of four thousand open brackets
    b"Bearer ..",
]


@pytest.mark.parametrize("shown", SHOWN, ids=lambda shown: repr(shown[:20]))
async def test_whatever_is_no_token_is_refused_as_that(shown: bytes) -> None:
    async with gateway() as (_, port):
        for path in (b"/mcp", b"/revoke"):
            client = await Client.connect(port)
            await client.send(head(b"Authorization: " + shown, b"Content-Length: 0", path=path))
            assert (path, await client.status()) == (path, 401)


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        ((b"Cookie: aworld-vnc-name=\xff\xfe.\xff",), 401),
        ((b"Cookie: aworld-vnc-name=12.\xc3\xa9",), 401),
        ((b"Origin: http://[", b"Upgrade: websocket"), 403),
        ((b"Origin: \xff\xfe", b"Upgrade: websocket"), 403),
    ],
)
async def test_the_desktop_pages_take_no_odd_header_for_a_login(
    lines: tuple[bytes, ...], status: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(desktop, "NOVNC", str(tmp_path))
    pages = DesktopPages("name", SECRET, "password", []).application()
    async with gateway(pages) as (_, port):
        client = await Client.connect(port)
        await client.send(head(*lines, method=b"GET", path=PREFIX.encode()))
        assert await client.status() == status


async def test_a_password_that_stalls_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(desktop, "NOVNC", str(tmp_path))
    monkeypatch.setattr(desktop, "_FORM_SECONDS", SHORT)
    pages = DesktopPages("name", SECRET, "password", []).application()
    async with gateway(pages) as (_, port):
        client = await Client.connect(port)
        await client.send(head(b"Origin: http://x", b"Content-Length: 20", path=PREFIX.encode()) + b"pass")
        assert await client.status() == 408


async def test_a_compressed_form_is_not_unpacked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(desktop, "NOVNC", str(tmp_path))
    pages = DesktopPages("name", SECRET, "password", []).application()
    form = gzip.compress(b"password=password")
    async with gateway(pages) as (_, port):
        client = await Client.connect(port)
        lines = (b"Origin: http://x", b"Content-Encoding: gzip", b"Content-Length: %d" % len(form))
        await client.send(head(*lines, path=PREFIX.encode()) + form)
        assert await client.status() == 401


async def test_nothing_that_a_client_sent_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    mark = b"do-not-log-this"
    requests = [
        head(b"Authorization: Bearer " + mark + b"\x00"),
        head(b"Authorization Bearer " + mark),
        head(b"Authorization: Bearer " + mark * 1000),
        mark + b" / HTTP/1.1\r\n\r\n",
        head(path=b"/" + mark + b"\x7f\xff"),
        head(b"Content-Length: " + mark),
        authorized(b"Transfer-Encoding: chunked") + mark + b"\r\n",
        authorized(b"Mcp-Session-Id: none", b"Accept: " + mark + b"\xff", b"Content-Length: 0"),
        head(b"Authorization: Bearer " + mark, *[b"X-%d: y" % number for number in range(200)]),
    ]
    with caplog.at_level(logging.INFO):
        async with gateway() as (_, port):
            for request in requests:
                client = await Client.connect(port)
                await client.send(request)
                assert await client.status() in (400, 401, 404)
    assert "what came from 127.0.0.1 is not HTTP" in caplog.text
    assert mark.decode() not in caplog.text
    assert mark.decode() not in "".join(str(record.exc_info) for record in caplog.records)


async def test_of_a_request_that_fails_the_place_is_logged_and_not_the_text(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> None:
        raise RuntimeError("do-not-log-this")

    async with gateway() as (served, port):
        monkeypatch.setattr(served.admission, "admit", fail)
        client = await Client.connect(port)
        await client.send(authorized(b"Content-Length: 0"))
        assert await client.status() == 500
    assert "RuntimeError" in caplog.text and "in fail" in caplog.text
    assert "do-not-log-this" not in caplog.text.replace('raise RuntimeError("do-not-log-this")', "")
