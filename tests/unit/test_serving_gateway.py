"""A gateway whose worker lives goes on with it, even if it was not to be had for a moment."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from aworld_train.serving.channel import Channel
from aworld_train.serving.gateway.app import Gateway, Limits
from aworld_train.serving.tokens import sign
from tests.environments import HEADERS, HELLO, eventually
from tests.unit.test_serving_worker import SECRET, WITHIN, worker


@asynccontextmanager
async def between(socket: str, break_off: Callable[[bytes], bool], folder: Path) -> AsyncIterator[str]:
    """A socket that leads to the other one, except for requests that are to break off."""

    async def back(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                writer.write(data)
        writer.close()

    async def lead(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        on_reader, on_writer = await asyncio.open_unix_connection(socket)
        answers = asyncio.create_task(back(on_reader, writer))
        with suppress(ConnectionError):
            while (data := await reader.read(1 << 16)) and not break_off(data):
                on_writer.write(data)
        writer.close()
        on_writer.close()
        await answers

    path = str(folder / "between.sock")
    server = await asyncio.start_unix_server(lead, path)
    yield path
    server.close()


@asynccontextmanager
async def gateway(socket: str) -> AsyncIterator[tuple[aiohttp.ClientSession, str, Gateway]]:
    """A gateway of that worker, a client with a token, and the address."""
    made = Gateway("name", SECRET, [socket], Limits(queue_seconds=WITHIN))
    runner = web.AppRunner(made.application())
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    now = int(time.time())
    token = sign(SECRET, "name", issued=now, expires=now + 600)
    headers = {**HEADERS, "Authorization": f"Bearer {token}"}
    async with asyncio.timeout(WITHIN), aiohttp.ClientSession(headers=headers) as http:
        yield http, f"http://127.0.0.1:{runner.addresses[0][1]}/mcp", made
    await runner.cleanup()


def first(times: int, method: bytes) -> Callable[[bytes], bool]:
    """Whether a request is one of the first so many of its method."""
    left = [None] * times

    def is_one(request: bytes) -> bool:
        return request.startswith(method) and bool(left) and left.pop() is None

    return is_one


async def opened(http: aiohttp.ClientSession, url: str) -> dict[str, str]:
    async with http.post(url, json=HELLO) as answer:
        assert answer.status == 200, await answer.text()
        return {"Mcp-Session-Id": answer.headers["Mcp-Session-Id"]}


@pytest.mark.parametrize("sessions", [1, 2])
async def test_a_worker_that_was_not_to_be_had_once_is_used_again(sessions: int, tmp_path: Path) -> None:
    with worker(tmp_path, sessions=sessions) as (_, socket):
        assert await asyncio.to_thread(eventually, Path(socket).exists, WITHIN)
        async with between(socket, first(3, b"POST"), tmp_path) as path, gateway(path) as (http, url, made):
            for _ in range(3):
                session = await opened(http, url)
                async with http.delete(url, headers=session) as closed:
                    assert closed.status == 200
            assert made.pool.sessions == {}


async def test_where_the_end_of_a_session_does_not_arrive_others_of_its_worker_go_on(tmp_path: Path) -> None:
    with worker(tmp_path, sessions=2) as (_, socket):
        assert await asyncio.to_thread(eventually, Path(socket).exists, WITHIN)
        async with between(socket, first(3, b"DELETE"), tmp_path) as path, gateway(path) as (http, url, _):
            one, other = await opened(http, url), await opened(http, url)
            async with http.delete(url, headers=one) as closed:
                assert closed.status == 200
            listing = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
            async with http.post(url, json=listing, headers=other) as listed:
                assert (await listed.json())["result"]["tools"]
            await opened(http, url)


async def test_what_answers_in_a_workers_place_is_not_believed(tmp_path: Path) -> None:
    """It says that it is ready, and answers whatever it is asked; it does not have the secret."""
    asked: list[str] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        asked.append(request.path)
        proof = Channel("a guess").response_headers(request.headers)
        if request.path != "/state":
            return web.json_response({"jsonrpc": "2.0", "id": 0, "result": {}}, headers=proof)
        response = web.StreamResponse(headers=proof)
        await response.prepare(request)
        for _ in range(100):
            await response.write(b'{"ready": true, "slots": 1, "servers": ["odd"], "broken": {}}\n')
            await asyncio.sleep(0.1)
        return response

    impostor = web.Application()
    impostor.router.add_route("*", "/{path}", answer)
    runner = web.AppRunner(impostor)
    await runner.setup()
    path = str(tmp_path / "worker.sock")
    await web.UnixSite(runner, path).start()
    async with gateway(path) as (http, url, made):
        opening = asyncio.create_task(http.post(url, json=HELLO))
        assert await asyncio.to_thread(eventually, lambda: asked.count("/state") >= 3, WITHIN)
        assert made.pool.states() == {"ready": 0, "busy": 0, "cleaning": 0, "down": 1}
        assert not opening.done()
        opening.cancel()
        assert set(asked) == {"/state"}
    await runner.cleanup()
