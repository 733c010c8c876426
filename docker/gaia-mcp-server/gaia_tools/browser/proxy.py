"""The browser's one way out: a forward proxy in this process that connects only where tools may go.

Names are resolved here, every address is checked by `gaia_tools.addresses.may_reach`, and the connection goes to what
was checked. Where the environment has a proxy (`gaia_tools.upstream`), it is asked for each connection instead. This
one takes ``CONNECT`` and requests for ``http://`` addresses, one per connection, and needs no password.
"""

import asyncio
import base64
import contextlib
import ipaddress
import socket
from collections import deque
from dataclasses import dataclass

import aiohttp
from mcp.server.fastmcp.exceptions import ToolError
from yarl import URL

from gaia_tools import upstream
from gaia_tools.addresses import may_reach, refusal

_Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
_CHUNK = 1 << 16
_MAX_HEAD = 1 << 16
_CONNECT_SECONDS = 15.0
_PROXY_SECONDS = 45.0  # it has name servers to ask, and addresses to try
_OWN_HEADERS = (b"connection", b"keep-alive", b"proxy-")
REFUSED = "x-refused"
"""Header of an answer that is the proxy's own."""
_NOTHING_TO_SAY = "it does not exist, or does not answer"


@dataclass(frozen=True)
class Refusal:
    target: str
    reason: str


class Proxy:
    """A forward proxy on loopback; ``refusals`` has the latest connections that were not made, of `refused` in all."""

    def __init__(self) -> None:
        self.refusals: deque[Refusal] = deque(maxlen=200)
        self.refused = 0
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=_MAX_HEAD)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    def since(self, number: int) -> list[Refusal]:
        count = min(self.refused - number, len(self.refusals))
        return list(self.refusals)[len(self.refusals) - count :]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            await self._answer(reader, writer)
        except (OSError, ValueError, EOFError, asyncio.LimitOverrunError, asyncio.CancelledError):
            pass  # either side has gone, or speaks no HTTP
        finally:
            self._open.discard(task)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        method, target, headers = _request(await reader.readuntil(b"\r\n\r\n"))
        url = URL(f"//{target}" if method == "CONNECT" else target)
        port = url.explicit_port or (url.port if method != "CONNECT" else None)
        if not url.host or not port or (method != "CONNECT" and url.scheme != "http"):
            writer.write(_page("400 Bad Request", f"{target} cannot be asked for here."))
            return
        try:
            there, to_there = await self._connect(url.host, port)
        except _NotMade as error:
            self.refusals.append(Refusal(f"{url.raw_host}:{port}", str(error)))
            self.refused += 1
            writer.write(_page("403 Forbidden", str(error)))
            await writer.drain()
            return
        try:
            if method == "CONNECT":
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
                await asyncio.gather(_copy(reader, to_there), _copy(there, writer))
                return
            path = url.raw_path_qs or "/"
            to_there.write(f"{method} {path} HTTP/1.1\r\n".encode() + headers + b"Connection: close\r\n\r\n")
            sending = asyncio.create_task(_copy(reader, to_there))
            try:
                await _pass_heads(there, writer)
                await _copy(there, writer)
            finally:
                sending.cancel()
        finally:
            to_there.close()

    async def _connect(self, host: str, port: int) -> _Streams:
        through = upstream.proxy(host)
        if through is not None:
            return await _connect_through(through, host, port)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
                addresses = [str(one[4][0]) for one in found]
                for address in addresses:
                    if not may_reach(host, address, port):
                        raise _NotMade(refusal(host, address))
                for address in addresses:
                    with contextlib.suppress(OSError):
                        return await asyncio.open_connection(address, port)
        except (OSError, UnicodeError) as error:  # a time-out is an OSError, too
            raise _NotMade(f"{host} cannot be reached: {str(error) or _NOTHING_TO_SAY}.") from error
        raise _NotMade(f"{host}:{port} cannot be reached: nothing answers there.")


async def _connect_through(proxy: URL, host: str, port: int) -> _Streams:
    """A connection that the environment's proxy makes; an address is checked here all the same."""
    with contextlib.suppress(ValueError):
        if not may_reach(host, str(ipaddress.ip_address(host)), port):
            raise _NotMade(refusal(host, host))
    target = f"[{host}]:{port}" if ":" in host else f"{host.encode('idna').decode('ascii')}:{port}"
    lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}"]
    if proxy.user:
        pair = base64.b64encode(f"{proxy.user}:{proxy.password or ''}".encode()).decode("ascii")
        lines.append(f"Proxy-Authorization: Basic {pair}")
    writer = None
    try:
        async with asyncio.timeout(_PROXY_SECONDS):
            reader, writer = await asyncio.open_connection(proxy.host, proxy.port)
            writer.write("".join(f"{line}\r\n" for line in [*lines, ""]).encode("ascii"))
            status, headers = _answer_of((await reader.readuntil(b"\r\n\r\n")).decode("latin-1"))
        if status == 200:
            return reader, writer
        raise upstream.failure(host, status, headers)
    except (ToolError, aiohttp.ClientError, OSError, EOFError, ValueError) as error:
        if writer is not None:
            writer.close()
        if isinstance(error, ToolError):
            raise _NotMade(str(error)) from error
        raise _NotMade(f"{host} cannot be reached: {str(error) or _NOTHING_TO_SAY}.") from error


def _answer_of(head: str) -> tuple[int, dict[str, str]]:
    line, _, rest = head.partition("\r\n")
    pairs = [one.partition(":") for one in rest.split("\r\n") if ":" in one]
    known = {name.strip().lower(): value.strip() for name, _, value in pairs}
    return int(line.split()[1]), {upstream.HEADER: known.get(upstream.HEADER.lower(), "")}


class _NotMade(Exception):
    """A connection that was not made, and why."""


def _request(head: bytes) -> tuple[str, str, bytes]:
    line, _, rest = head.partition(b"\r\n")
    method, target, _ = line.decode("ascii").split(" ")
    return method, target, _for_the_other_end(rest)


def _for_the_other_end(headers: bytes) -> bytes:
    lines = [line for line in headers.split(b"\r\n") if line and not line.lower().startswith(_OWN_HEADERS)]
    return b"".join(line + b"\r\n" for line in lines)


async def _pass_heads(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        status, _, headers = (await reader.readuntil(b"\r\n\r\n")).partition(b"\r\n")
        if not status.split(b" ")[1].startswith(b"1"):
            writer.write(status + b"\r\n" + _for_the_other_end(headers) + b"Connection: close\r\n\r\n")
            return


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while chunk := await reader.read(_CHUNK):
        writer.write(chunk)
        await writer.drain()
    with contextlib.suppress(OSError):
        writer.write_eof()


def _page(status: str, text: str) -> bytes:
    body = text.encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + f"{REFUSED}: yes\r\n".encode() + b"Connection: close\r\n\r\n" + body
