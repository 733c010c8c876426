"""Addresses that a model gives are reached only where that is safe, and never without an end."""

import asyncio
import gzip
import resource
import socket
from collections.abc import Callable
from typing import Any

import pytest
from aiohttp import web as http
from gaia_tools import addresses, web
from mcp.server.fastmcp.exceptions import ToolError

from tests.conftest import Serve


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "_FIRST_PAUSE", 0.01)


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes names resolve to addresses, below all that the tools use."""
    known: dict[str, list[str]] = {}
    real = socket.getaddrinfo

    def getaddrinfo(host: Any, port: Any, *rest: Any, **more: Any) -> Any:
        if host not in known:
            return real(host, port, *rest, **more)
        return [
            (
                (socket.AF_INET6, socket.SOCK_STREAM, 6, "", (address, port, 0, 0))
                if ":" in address
                else (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))
            )
            for address in known[host]
        ]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)

    def resolve(name: str, *to: str) -> None:
        known[name] = list(to)

    return resolve


async def hello(request: http.Request) -> http.Response:
    return http.Response(text=f"hello {request.query_string}")


async def away(request: http.Request) -> http.Response:
    return http.Response(status=302, headers={"Location": request.query["to"]})


async def test_a_page_comes_back(serve: Serve) -> None:
    found = await web.fetch(await serve(hello), params={"q": "a b"})
    assert (found.status, found.body, found.content_type) == (200, b"hello q=a b", "text/plain")


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:1/",
        "http://127.0.0.1.:1/",
        "http://localhost:1/",
        "http://2130706433/",
        "http://0x7f.1/",
        "http://0x7f000001/",
        "http://017700000001/",
        "http://127.1/",
        "http://0/",
        "http://127。0。0。1/",
        "http://①②⑦.0.0.1/",
        "http://１２７.0.0.1/",
        "http://ⓛocalhost:1/",
        "http://[::1]/",
        "http://[::]/",
        "http://[::127.0.0.1]/",
        "http://[::ffff:127.0.0.1]/",
        "http://[::ffff:0:127.0.0.1]/",
        "http://[64:ff9b::7f00:1]/",
        "http://[64:ff9b:1::7f00:1]/",
        "http://[2002:7f00:1::]/",
        "http://[2001:4860::5efe:7f00:1]/",
        "http://[fe80::1%25eth0]/",
        "http://[fe80::1%eth0]/",
        "http://[fec0::1]/",
        "http://[fd00:ec2::254]/",
        "http://[ff02::1]/",
        "http://[2001:db8::1]/",
        "http://169.254.169.254/latest/meta-data/",
        "http://10.0.0.1/",
        "http://172.16.0.1/",
        "http://192.168.1.1/",
        "http://100.64.0.1/",
        "http://100.100.100.200/latest/meta-data/",
        "http://198.18.0.1/",
        "http://192.0.2.1/",
        "http://0.0.0.0/",
        "http://224.0.0.1/",
        "http://255.255.255.255/",
    ],
)
async def test_addresses_that_are_not_public_are_refused(url: str) -> None:
    with pytest.raises(ToolError, match=r"not a public address|not a canonical"):
        await web.fetch(url)


@pytest.mark.parametrize(
    "address",
    [
        "192.0.0.1",
        "192.0.0.9",
        "192.0.0.10",
        "192.0.0.192",
        "192.31.196.1",
        "192.52.193.1",
        "192.88.99.1",
        "192.175.48.1",
        "198.51.100.1",
        "203.0.113.1",
        "168.63.129.16",
        "64:ff9b:1::808:808",
        "100::1",
        "100:0:0:1::1",
        "2001::1",
        "2001:1::1",
        "2001:2::1",
        "2001:3::1",
        "2001:4:112::1",
        "2001:10::1",
        "2001:20::1",
        "2001:30::1",
        "2001:1ff:ffff::1",
        "2001:db8::1",
        "2002:808:808::1",
        "2620:4f:8000::1",
        "3fff::1",
        "5f00::1",
    ],
)
def test_no_block_of_the_special_purpose_registries_may_be_reached(address: str) -> None:
    assert not addresses.may_reach("example.org", address, 80)


@pytest.mark.parametrize("address", ["8.8.8.8", "2001:4860:4860::8888", "64:ff9b::808:808", "::ffff:8.8.8.8"])
def test_public_addresses_may_be_reached(address: str) -> None:
    assert addresses.may_reach("example.org", address, 80)


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "ftp://example.com",
        "gopher://x",
        "example.com",
        "http://",
        "http:///path",
        "",
        "javascript:alert(1)",
        "data:text/html,x",
        "http://a:b@example.com/",
        "http://a@127.0.0.1/",
        "http://evil.com\\@127.0.0.1/",
        "http://example.com:99999/",
        "http://ex ample.com/",
        "http://%31%32%37.0.0.1/",
        "http://localhost%00.example.com/",
        "http://[::1/",
        "http://" + "a" * 70 + ".com/",
    ],
)
async def test_what_is_no_web_address_is_refused(url: str) -> None:
    with pytest.raises(ToolError):
        await web.fetch(url)


async def test_line_breaks_in_an_address_add_no_header(serve: Serve) -> None:
    async def seen(request: http.Request) -> http.Response:
        return http.Response(text=f"{request.path} {'X-Added' in request.headers}")

    found = await web.fetch(await serve(seen) + "/a\r\nX-Added: 1\r\n\r\n")
    assert found.body.endswith(b" False")


async def test_names_that_lead_to_private_addresses_are_refused(
    serve: Serve, names: Callable[..., None]
) -> None:
    base = await serve(hello, allowed=False)
    port = base.rpartition(":")[2]
    names("rebind.example", "127.0.0.1")
    names("mixed.example", "93.184.215.14", "127.0.0.1")
    names("metadata.example", "169.254.169.254")
    names("six.example", "::1")
    names("mapped.example", "::ffff:127.0.0.1")
    for host in ("rebind", "mixed", "metadata", "six", "mapped"):
        with pytest.raises(web.Refused, match=rf"{host}.example \(.+\) is not a public address"):
            await web.fetch(f"http://{host}.example:{port}/")


async def test_a_private_host_on_the_allow_list_is_reached_on_its_port_only(
    serve: Serve, names: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    port = (await serve(hello, allowed=False)).rpartition(":")[2]
    names("wiki.internal", "127.0.0.1")
    monkeypatch.setenv("TOOLS_ALLOWED_HOSTS", f"Wiki.Internal:{port}")
    assert (await web.fetch(f"http://wiki.internal:{port}/")).status == 200
    with pytest.raises(web.Refused):
        await web.fetch("http://wiki.internal:1/")


async def test_redirects_are_checked_and_end(serve: Serve) -> None:
    async def around(request: http.Request) -> http.Response:
        raise http.HTTPFound("/again")

    base = await serve(away)
    for to, match in [
        ("http://169.254.169.254/", r"169.254.169.254 is not a public address"),
        ("//localhost:1/", "not a public address"),
        ("file:///etc/passwd", "not an http or https"),
        ("http://u:p@example.com/", "leave them out"),
        ("http://[", "not an address"),
    ]:
        with pytest.raises(ToolError, match=match):
            await web.fetch(base, params={"to": to})
    with pytest.raises(ToolError, match="redirects more than 10 times"):
        await web.fetch(await serve(around))


async def test_own_headers_are_not_sent_on_to_another_host(serve: Serve) -> None:
    async def key(request: http.Request) -> http.Response:
        return http.Response(text=request.headers.get("X-Key", "none"))

    other = await serve(key)
    found = await web.fetch(f"{await serve(away)}/?to={other}/", headers={"X-Key": "secret"})
    assert found.body == b"none"


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

    inflated = gzip.compress(bytes(400 << 20), compresslevel=1)

    async def bomb(request: http.Request) -> http.Response:
        return http.Response(body=inflated, headers={"Content-Encoding": "gzip"})

    with pytest.raises(ToolError, match="more than 1 MB"):
        await web.fetch(await serve(endless), most_bytes=1 << 20)
    beginning = await web.fetch(await serve(endless), most_bytes=1000, cut=True)
    assert (len(beginning.body), beginning.complete) == (1000, False)
    with pytest.raises(ToolError, match=r"within 0.3 seconds"):
        await web.fetch(await serve(slow), seconds=0.3)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ToolError, match="more than 20 MB"):
        await web.fetch(await serve(bomb))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 << 10  # kilobytes


async def test_damaged_answers_are_an_error(serve: Serve) -> None:
    async def no_gzip(request: http.Request) -> http.Response:
        return http.Response(body=b"not gzip", headers={"Content-Encoding": "gzip"})

    with pytest.raises(ToolError, match="cannot be reached"):
        await web.fetch(await serve(no_gzip))


async def test_long_headers_are_taken(serve: Serve) -> None:
    async def long(request: http.Request) -> http.Response:
        return http.Response(text="ok", headers={"Content-Security-Policy": "x" * 20_000})

    assert (await web.fetch(await serve(long))).body == b"ok"


def busy(times: int, status: int = 503, **headers: str) -> Any:
    left = [times]

    async def handler(request: http.Request) -> http.Response:
        left[0] -= 1
        if left[0] >= 0:
            return http.Response(status=status, text="busy", headers=headers)
        return http.Response(text=await request.text() or "done")

    return handler


async def test_a_busy_host_is_asked_again_only_where_tries_and_time_allow(serve: Serve) -> None:
    assert (await web.fetch(await serve(busy(2)), tries=3)).body == b"done"
    assert (await web.fetch(await serve(busy(2)), tries=2)).status == 503
    assert (await web.fetch(await serve(busy(1)))).status == 503
    waiting = await serve(busy(1, 429, **{"Retry-After": "3600"}))
    assert (await web.fetch(waiting, tries=3)).status == 429
    patient = await serve(busy(1, 429, **{"Retry-After": "Wed, 21 Oct 2037 07:28:00 GMT"}))
    assert (await web.fetch(patient, tries=2)).status == 200


async def test_a_service_of_the_operator_is_reached_although_private(serve: Serve) -> None:
    base = await serve(busy(3), allowed=False)
    found = await web.api(base + "/", "/x", "Service", body={"a": 1})
    assert found.body == b'{"a": 1}'
    with pytest.raises(web.Refused):
        await web.fetch(base)


async def test_a_service_redirects_within_itself_but_to_no_other_private_host(serve: Serve) -> None:
    async def redirecting(request: http.Request) -> http.Response:
        if request.path == "/in":
            raise http.HTTPFound("/out")
        return await away(request) if "to" in request.query else http.Response(text="in")

    base, other = await serve(redirecting, allowed=False), await serve(hello, allowed=False)
    assert (await web.api(base, "/in", "Service")).body == b"in"
    with pytest.raises(ToolError, match=r"Service: .*not a public address"):
        await web.api(base, "/x", "Service", params={"to": other})


async def test_a_secret_is_in_no_error(serve: Serve) -> None:
    async def echo(request: http.Request) -> http.Response:
        return http.Response(status=403, text=f"bad key {request.query['key']} {request.query_string}")

    secret = "se/cret+1"
    found = await web.api(
        await serve(echo, allowed=False), "/x", "Service", params={"key": secret}, secret=secret
    )
    assert b"bad key ***" in found.body
    assert b"cret" not in found.body
    with pytest.raises(ToolError) as refused:
        await web.api("http://127.0.0.1:1", "/x", "Service", params={"key": secret}, secret=secret, seconds=2)
    assert "cret" not in str(refused.value)


async def test_an_answer_that_is_no_json_is_an_error(serve: Serve) -> None:
    with pytest.raises(ToolError, match="not valid JSON"):
        web.decode_json(await web.fetch(await serve(hello)), "Service")
