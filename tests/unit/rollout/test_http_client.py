"""The sessions of event loops, and JSON requests: their failures are one line, without keys and passwords."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from aworld_train.rollout.http_client import RequestFailed, SessionPerLoop, request_json
from tests.proxies import PROXY_USER, Proxy, proxy_variables

KEY = "sk-very-secret"
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def raw_server(reply: bytes) -> AsyncIterator[str]:
    """A server that sends these bytes whatever it gets."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(reply)
        writer.close()

    async with await asyncio.start_server(handle, "127.0.0.1", 0) as server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"


def responds(**response: Any) -> Handler:
    async def handler(request: web.Request) -> web.StreamResponse:
        return web.Response(**response)

    return handler


async def get(url: str, **options: Any) -> Any:
    async with aiohttp.ClientSession() as session:
        return await request_json(session, "GET", url, key=KEY, **options)


async def failure(url: str, **options: Any) -> str:
    with pytest.raises(RequestFailed) as caught:
        await get(url, **options)
    error_message = str(caught.value)
    assert "\n" not in error_message
    assert "secret" not in error_message
    assert "sesame" not in error_message
    return error_message


def test_each_event_loop_has_a_session_that_ends_with_it() -> None:
    sessions = SessionPerLoop(keepalive_seconds=4.0)

    async def twice() -> aiohttp.ClientSession:
        session, other = await asyncio.gather(sessions.get(), sessions.get())
        assert session is other
        assert not session.closed
        return session

    first, second = asyncio.run(twice()), asyncio.run(twice())
    assert first is not second
    assert first.closed
    assert second.closed
    assert sessions._sessions == {}


@pytest.mark.filterwarnings("ignore:Unclosed:ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_loop_that_was_closed_without_its_end_is_forgotten() -> None:
    sessions = SessionPerLoop(keepalive_seconds=4.0)
    abandoned = asyncio.new_event_loop()
    abandoned.run_until_complete(sessions.get())
    abandoned.close()

    async def known() -> list[asyncio.AbstractEventLoop]:
        await sessions.get()
        return list(sessions._sessions)

    with asyncio.Runner() as runner:
        assert runner.run(known()) == [runner.get_loop()]


async def test_at_most_so_many_connections_are_open() -> None:
    under_way, most = 0, 0

    async def handler(request: web.Request) -> web.StreamResponse:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.02)
        under_way -= 1
        return web.json_response(None)

    async with serving(handler) as url:
        for limit, expected in ((2, 2), (0, 6)):
            sessions = SessionPerLoop(keepalive_seconds=4.0, max_connections=limit)
            session = await sessions.get()
            most = 0
            await asyncio.gather(*(request_json(session, "GET", url, key=None) for _ in range(6)))
            assert most == expected
            await session.close()


async def test_no_cookie_is_kept() -> None:
    cookies = []

    async def handler(request: web.Request) -> web.StreamResponse:
        cookies.append(dict(request.cookies))
        response = web.json_response(None)
        response.set_cookie("who", "one")
        return response

    async with serving(handler) as url:
        sessions = SessionPerLoop(keepalive_seconds=4.0)
        session = await sessions.get()
        for _ in range(2):
            await request_json(session, "GET", url.replace("127.0.0.1", "localhost"), key=None)
        await session.close()
    assert cookies == [{}, {}]


async def test_the_body_and_the_key_are_sent_and_json_comes_back() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        authorization = request.headers.get("Authorization")
        return web.Response(text=json.dumps([request.method, authorization, await request.json()]))

    async with serving(handler) as url, aiohttp.ClientSession() as session:
        with_key = await request_json(session, "POST", url, key=KEY, body={"text": "é漢"})
        without = await request_json(session, "POST", url, key=None, body=[])
    assert with_key == ["POST", f"Bearer {KEY}", {"text": "é漢"}]
    assert without == ["POST", None, []]


@pytest.mark.parametrize("status", [300, 302, 307, 401, 500])
async def test_an_error_status_fails_with_the_beginning_of_the_text(status: int) -> None:
    text = f"Bearer {KEY} was refused " + "x" * 1000
    headers = {"Location": "/elsewhere"} if status < 400 else {}
    async with serving(responds(status=status, text=text, headers=headers)) as url:
        error_message = await failure(url)
    assert error_message.startswith(f"HTTP {status} 'Bearer *** was refused xxx")
    assert len(error_message) < 250


@pytest.mark.parametrize("charset", ["utf-8", "no-such-charset"])
async def test_an_error_text_that_cannot_be_decoded_is_shown_as_far_as_possible(charset: str) -> None:
    headers = {"Content-Type": f"text/plain; charset={charset}"}
    async with serving(responds(status=500, body=b"ab\xffcd", headers=headers)) as url:
        assert await failure(url) == "HTTP 500 'ab\ufffdcd'"


@pytest.mark.parametrize("body", [b"", b"<html>", b"\xff\xfe\xff", b"[" * 100_000], ids=len)
async def test_an_answer_that_is_no_json_is_a_value_error(body: bytes) -> None:
    async with serving(responds(body=body)) as url:
        with pytest.raises(ValueError, match=r"."):
            await get(url)


async def test_what_is_no_http_fails_in_one_line() -> None:
    async with raw_server(b"nonsense\r\n\r\n") as address:
        assert (await failure(f"http://{address}")).startswith("ClientResponseError 400, ")
        assert "AUTHORIZATION" in await failure(f"http://user:sesame@{address}")


async def test_an_answer_that_breaks_off_fails() -> None:
    async with raw_server(b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n[1,") as address:
        assert (await failure(f"http://{address}")).startswith("ClientPayloadError ")


async def test_a_part_of_the_answer_that_does_not_come_in_time_fails() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(60)
        return web.Response()

    async with serving(handler) as url:
        error_message = await failure(url, time_limits=aiohttp.ClientTimeout(sock_read=0.1))
    assert error_message.startswith("SocketTimeoutError ")


async def test_no_server_and_no_url_fail() -> None:
    assert (await failure("http://127.0.0.1:9/v1")).startswith(
        "ConnectError Cannot connect to host 127.0.0.1"
    )
    assert (await failure("http://127.0.0.1:port/v1")).startswith("InvalidURL ")
    assert "user" not in await failure("ftp://user:sesame@127.0.0.1/v1")


async def test_a_far_server_is_reached_through_the_proxy_with_its_password() -> None:
    with Proxy(body=[42]) as proxy, proxy.variables("all"):
        assert await get("http://model.invalid/v1") == [42]
    assert proxy.requests == [("GET", "model.invalid")]
    assert proxy.credentials == ["Basic " + base64.b64encode(PROXY_USER.encode()).decode()]


async def test_a_proxy_that_refuses_is_reported_without_its_password() -> None:
    with Proxy(status=407) as proxy, proxy.variables("https"):
        assert "407" in await failure("https://model.invalid/v1")
    assert proxy.requests[0][0] == "CONNECT"


async def test_a_proxy_that_is_no_http_proxy_fails() -> None:
    with proxy_variables(all="socks5h://user:sesame@127.0.0.1:9"):
        assert "socks5h proxy for model.invalid" in await failure("http://model.invalid/v1")
