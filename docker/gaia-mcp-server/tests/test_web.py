"""Addresses that a model gives are reached only where that is safe, and never without an end."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from aiohttp import web as http
from aiohttp.test_utils import TestServer
from gaia_tools import web
from mcp.server.fastmcp.exceptions import ToolError

Serve = Callable[..., Awaitable[str]]


@pytest.fixture
async def serve(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Serve]:
    servers = []

    async def start(
        handler: Callable[[http.Request], Awaitable[http.StreamResponse]], allowed: bool = True
    ) -> str:
        app = http.Application()
        app.router.add_route("*", "/{path:.*}", handler)
        server = TestServer(app)
        await server.start_server()
        servers.append(server)
        if allowed:
            monkeypatch.setenv("TOOLS_ALLOWED_HOSTS", f"127.0.0.1:{server.port}")
        return f"http://127.0.0.1:{server.port}"

    yield start
    for server in servers:
        await server.close()


async def hello(request: http.Request) -> http.Response:
    return http.Response(text=f"hello {request.query_string}")


async def test_a_page_comes_back(serve: Serve) -> None:
    found = await web.fetch(await serve(hello), params={"q": "a b"})
    assert (found.status, found.body, found.content_type) == (200, b"hello q=a b", "text/plain")


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:1/",
        "http://localhost:1/",
        "http://2130706433/",
        "http://0x7f.1/",
        "http://[::1]/",
        "http://[::ffff:127.0.0.1]/",
        "http://[64:ff9b::7f00:1]/",
        "http://169.254.169.254/latest/meta-data/",
        "http://10.0.0.1/",
        "http://192.168.1.1/",
        "http://100.64.0.1/",
        "http://0.0.0.0/",
        "http://224.0.0.1/",
    ],
)
async def test_addresses_that_are_not_public_are_refused(url: str) -> None:
    with pytest.raises(ToolError, match=r"not a public address|not a canonical"):
        await web.fetch(url)


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "ftp://example.com",
        "gopher://x",
        "example.com",
        "http://",
        "http://a:b@example.com/",
    ],
)
async def test_what_is_no_web_address_is_refused(url: str) -> None:
    with pytest.raises(ToolError):
        await web.fetch(url)


async def test_redirects_are_checked_and_end(serve: Serve) -> None:
    async def away(request: http.Request) -> http.Response:
        raise http.HTTPFound(request.query["to"])

    async def around(request: http.Request) -> http.Response:
        raise http.HTTPFound("/again")

    with pytest.raises(ToolError, match=r"169.254.169.254 is not a public address"):
        await web.fetch(await serve(away) + "/?to=http://169.254.169.254/")
    with pytest.raises(ToolError, match="not an http or https"):
        await web.fetch(await serve(away) + "/?to=file:///etc/passwd")
    with pytest.raises(ToolError, match="redirects more than 10 times"):
        await web.fetch(await serve(around))


async def test_endless_slow_and_inflated_bodies_are_cut_off(serve: Serve) -> None:
    async def endless(request: http.Request) -> http.StreamResponse:
        response = http.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b"x" * 65536)

    async def slow(request: http.Request) -> http.StreamResponse:
        response = http.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b"x")
            await asyncio.sleep(0.05)

    async def bomb(request: http.Request) -> http.Response:
        import gzip

        return http.Response(body=gzip.compress(bytes(30 << 20)), headers={"Content-Encoding": "gzip"})

    with pytest.raises(ToolError, match="more than 1 MB"):
        await web.fetch(await serve(endless), most_bytes=1 << 20)
    beginning = await web.fetch(await serve(endless), most_bytes=1000, cut=True)
    assert (len(beginning.body), beginning.complete) == (1000, False)
    with pytest.raises(ToolError, match=r"within 0.3 seconds"):
        await web.fetch(await serve(slow), seconds=0.3)
    with pytest.raises(ToolError, match="more than 20 MB"):
        await web.fetch(await serve(bomb))
