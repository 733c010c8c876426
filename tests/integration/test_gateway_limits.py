"""A gateway as a process of its own, under those who send too much: its memory stays small, and others are served.

Its worker is one that throws away what it gets and gives as much as it is asked for, so that there is something to see
of the gateway alone.
"""

import asyncio
import io
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from socket import socket

import aiohttp
import psutil
import pytest
from aiohttp import web

from aworld_train.env.health import probe as answers
from aworld_train.serving.channel import Channel, derive_secret
from aworld_train.serving.tokens import new_secret, sign
from tests.environments import HEADERS, HELLO, eventually

SECRET = new_secret()
MEGABYTE = 1 << 20
MAX_RSS = 256 * MEGABYTE
"""Half of what a container has: 50 MiB, the budget of 96 MiB, and the connections."""
MAX_SECONDS = 200.0


def stub_worker() -> web.Application:
    """A worker that answers a message with as many bytes as its content type asks for."""
    channel = Channel(derive_secret(SECRET, 0))

    async def state(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers=channel.response_headers(request.headers))
        await response.prepare(request)
        while True:
            line = {"ready": True, "slots": 10_000, "servers": ["stub"], "broken": {}}
            await response.write(json.dumps(line).encode() + b"\n")
            await asyncio.sleep(1)

    async def post(request: web.Request) -> web.StreamResponse:
        received = 0
        while chunk := await request.content.readany():
            received += len(chunk)
        length = int(request.headers.get("Last-Event-ID", "0"))
        headers = {**channel.response_headers(request.headers), "Content-Type": "application/json"}
        if not length:
            return web.Response(text=str(received), headers=headers)
        response = web.StreamResponse(headers=headers)
        response.content_length = length
        await response.prepare(request)
        for _ in range(length // MEGABYTE):
            await response.write(bytes(MEGABYTE))
        return response

    async def delete(request: web.Request) -> web.Response:
        return web.Response(headers=channel.response_headers(request.headers))

    app = web.Application()
    app.router.add_get("/state", state)
    app.router.add_post("/mcp", post)
    app.router.add_delete("/mcp", delete)
    return app


@dataclass(frozen=True)
class Running:
    """A gateway's process, and a client of it."""

    process: psutil.Process
    port: int
    http: aiohttp.ClientSession

    async def open_session(self, token_id: str) -> dict[str, str]:
        """The headers of a session with that token."""
        now = int(time.time())
        token = sign(SECRET, "name", issued=now, expires=now + 600, token_id=token_id)
        headers = {**HEADERS, "Content-Type": "application/json", "Authorization": f"Bearer {token}"}
        async with self.http.post(self.url, json=HELLO, headers=headers) as response:
            assert response.status == 200, await response.text()
            return {**headers, "Mcp-Session-Id": response.headers["Mcp-Session-Id"]}

    async def raw(
        self, headers: dict[str, str], length: int
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection on which the head of a message has been sent."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=1024)
        lines = [
            f"{name}: {value}" for name, value in {**headers, "Host": "x", "Content-Length": length}.items()
        ]
        writer.write("\r\n".join(["POST /mcp HTTP/1.1", *lines, "", ""]).encode())
        return reader, writer

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Running]:
    """A gateway whose worker is ready."""
    path = str(tmp_path / "worker.sock")
    runner = web.AppRunner(stub_worker(), shutdown_timeout=0.1)
    await runner.setup()
    await web.UnixSite(runner, path, backlog=4096).start()
    with closing(socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = start(path, port)
    try:
        url = f"http://127.0.0.1:{port}/health"
        assert await asyncio.to_thread(
            eventually, lambda: process.poll() is not None or answers(url), MAX_SECONDS
        )
        assert process.poll() is None
        async with (
            asyncio.timeout(MAX_SECONDS),
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http,
        ):
            yield Running(psutil.Process(process.pid), port, http)
    finally:
        process.terminate()
        process.wait(30)
        await runner.cleanup()


def start(worker: str, port: int) -> "subprocess.Popen[bytes]":
    settings = {
        **{"name": "name", "host": "127.0.0.1", "port": port, "sockets": [worker], "limits": {}},
        **{"scoring": 0, "egress": None},
    }
    variables = {**os.environ, "AWORLD_SECRET": SECRET, "AWORLD_GATEWAY": json.dumps(settings)}
    return subprocess.Popen([sys.executable, "-m", "aworld_train.serving.env_gateway"], env=variables)


async def use(gateway: Running, headers: dict[str, str], calls: int) -> int:
    """Make so many calls, each of which has to be answered; the most memory that the gateway had meanwhile."""
    peak = 0
    for _ in range(calls):
        async with gateway.http.post(gateway.url, data=b"{}", headers=headers) as response:
            assert (response.status, await response.text()) == (200, "2")
        peak = max(peak, gateway.process.memory_info().rss)
        await asyncio.sleep(0.02)
    return peak


@pytest.mark.parametrize("framed", ["by its length", "in chunks"])
async def test_many_long_messages_of_one_token_cost_little_memory_and_others_go_on(
    framed: str, gateway: Running
) -> None:
    length = 63 * MEGABYTE
    message = bytes(length)

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(63):
            yield bytes(MEGABYTE)

    async def send(headers: dict[str, str]) -> str:
        # Bytes are sent in one go: on a busy machine the worker, which is in this loop, would be silent for too long.
        data = io.BytesIO(message) if framed == "by its length" else chunks()
        async with gateway.http.post(gateway.url, data=data, headers=headers) as response:
            assert response.status == 200
            return await response.text()

    greedy, other = await gateway.open_session("greedy"), await gateway.open_session("other")
    sending = [asyncio.create_task(send(greedy)) for _ in range(12)]
    peak = await use(gateway, other, 1)
    assert not all(task.done() for task in sending)
    while not all(task.done() for task in sending):
        peak = max(peak, await use(gateway, other, 1))
    assert {task.result() for task in sending} == {str(length)}
    assert peak < MAX_RSS, peak >> 20


async def test_uploads_that_stall_cost_little_memory_and_others_go_on(gateway: Running) -> None:
    greedy, other = await gateway.open_session("greedy"), await gateway.open_session("other")
    stalled = [await gateway.raw(greedy, 63 * MEGABYTE) for _ in range(600)]
    for _, writer in stalled:
        writer.write(bytes(MEGABYTE))
    assert await use(gateway, other, 50) < MAX_RSS
    assert set(await asyncio.gather(*(reader.readline() for reader, _ in stalled))) <= {
        b"HTTP/1.1 408 Request Timeout\r\n",
        b"HTTP/1.1 503 Service Unavailable\r\n",
    }
    for _, writer in stalled:
        writer.close()


async def test_long_results_that_nobody_takes_cost_little_memory_and_others_go_on(gateway: Running) -> None:
    greedy, other = await gateway.open_session("greedy"), await gateway.open_session("other")
    large_download = {**greedy, "Last-Event-ID": str(32 * MEGABYTE)}
    stalled = [await gateway.raw(large_download, 0) for _ in range(600)]
    assert await use(gateway, other, 50) < MAX_RSS
    for _, writer in stalled:
        writer.transport.abort()
    async with gateway.http.post(gateway.url, data=b"{}", headers=large_download) as response:
        assert (response.status, len(await response.read())) == (200, 32 * MEGABYTE)


async def test_connections_that_never_show_a_token_cost_little_memory_and_others_go_on(
    gateway: Running,
) -> None:
    other = await gateway.open_session("other")
    strangers = []
    for _ in range(3000):
        try:
            strangers.append(await gateway.raw({}, 63 * MEGABYTE))
            strangers[-1][1].write(bytes(100_000))
        except ConnectionError:
            continue
    assert await use(gateway, other, 50) < MAX_RSS
    for _, writer in strangers:
        writer.transport.abort()
    await use(gateway, await gateway.open_session("new"), 1)
