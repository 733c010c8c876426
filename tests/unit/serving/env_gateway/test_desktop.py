"""The pages of the desktops: who may look, how a login ends, and what a stream carries."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import aiohttp
import pytest
from aiohttp import WSCloseCode, WSMsgType, web
from aiohttp.test_utils import TestClient, TestServer

from aworld_train.serving.env_gateway import desktop
from aworld_train.serving.env_gateway.desktop import (
    COOKIE_SECONDS,
    MAX_WRONG_TRIES,
    PREFIX,
    WRONG_SECONDS,
    DesktopPages,
)
from aworld_train.serving.env_gateway.worker_client import WorkerClient

NAME, SECRET, PASSWORD = "pages", "the secret", "the password"
COOKIE = f"aworld-vnc-{NAME}"
WITHIN = 30.0
Client = TestClient[web.Request, web.Application]


class Worker:
    """A worker whose desktop sends all that it gets back, and more at the end; it may fail at first."""

    def __init__(self, number: int, client: aiohttp.ClientSession, url: str, failures: int = 0):
        self.number, self.state = number, "busy"
        self._http, self._url, self._failures = client, url, failures

    async def connect(self, path: str, protocols: tuple[str, ...]) -> aiohttp.ClientWebSocketResponse:
        if self._failures:
            self._failures -= 1
            raise aiohttp.ClientConnectionError("it is being restarted")
        return await self._http.ws_connect(self._url + path, protocols=protocols)


ENDED = asyncio.Event()
"""Whether a worker's stream has ended."""


async def echo(request: web.Request) -> web.WebSocketResponse:
    """A worker's desktop: what it gets comes back; on ``end`` it ends the stream."""
    answer = web.WebSocketResponse(protocols=desktop.PROTOCOLS)
    await answer.prepare(request)
    async for message in answer:
        if message.data == b"end":
            break
        await answer.send_bytes(message.data)
    ENDED.set()
    return answer


@asynccontextmanager
async def serving(name: str = NAME, secret: str = SECRET, failures: int = 0) -> AsyncIterator[Client]:
    """A browser before the pages of two workers; the second is not to be had that often."""
    worker_app = web.Application()
    worker_app.router.add_get("/desktop", echo)
    async with asyncio.timeout(WITHIN), TestServer(worker_app) as worker, aiohttp.ClientSession() as http:
        links = [
            Worker(0, http, str(worker.make_url(""))),
            Worker(1, http, str(worker.make_url("")), failures),
        ]
        pages = DesktopPages(name, secret, PASSWORD, cast("list[WorkerClient]", links))
        app = web.Application()
        app.add_subapp(PREFIX, pages.application())
        async with TestClient(TestServer(app), cookie_jar=aiohttp.CookieJar(unsafe=True)) as browser:
            yield browser


def own(browser: Client) -> dict[str, str]:
    """The header by which a browser says that a page of this server asks."""
    return {"Origin": str(browser.make_url("")).rstrip("/")}


async def log_in(browser: Client, password: str = PASSWORD, **headers: str) -> aiohttp.ClientResponse:
    return await browser.post(
        PREFIX, data={"password": password}, headers={**own(browser), **headers}, allow_redirects=False
    )


@pytest.fixture(autouse=True)
def viewer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files of the viewer."""
    (tmp_path / "vnc.html").write_text("the viewer")
    monkeypatch.setattr(desktop, "NOVNC", str(tmp_path))


def signed(expires: object, name: str = NAME, secret: str = SECRET, password: str = PASSWORD) -> str:
    pages = DesktopPages(name, secret, password, [])
    return f"{expires}.{pages._signature(str(expires))}"


# Who may look


@pytest.mark.parametrize("path", ["", "0/", "7/", "0/stream", "novnc/vnc.html", "nothing"])
async def test_without_a_login_there_is_the_login_page_alone(path: str) -> None:
    async with serving() as browser, browser.get(PREFIX + path, allow_redirects=False) as refused:
        text = await refused.text()
        assert refused.status == 401 and 'type="password"' in text
        assert "worker 0" not in text and "the viewer" not in text and 'role="alert"' not in text


async def test_the_right_password_shows_all_workers_and_the_viewer() -> None:
    async with serving() as browser:
        welcome = await log_in(browser)
        assert (welcome.status, welcome.headers["Location"]) == (303, PREFIX)
        async with browser.get(PREFIX) as overview:
            text = await overview.text()
            assert '<a href="0/">worker 0</a> <small>busy' in text and "worker 1" in text
        async with browser.get(f"{PREFIX}1/", allow_redirects=False) as shown:
            assert shown.status == 302
            assert shown.headers["Location"].startswith(f"{PREFIX}novnc/vnc.html?autoconnect=true&")
            assert shown.headers["Location"].endswith("&path=vnc%2F1%2Fstream")
        async with browser.get(f"{PREFIX}novnc/vnc.html") as page:
            assert await page.text() == "the viewer"
        async with browser.get(f"{PREFIX}2/") as missing:
            assert (missing.status, await missing.text()) == (404, "no worker 2")


async def test_another_password_is_refused() -> None:
    async with serving() as browser:
        for wrong in ("", "the passwor", "the password2", "pässword"):
            refused = await log_in(browser, wrong)
            assert (refused.status, refused.cookies.get(COOKIE)) == (401, None)
            assert "That is not the password of this environment." in await refused.text()


@pytest.mark.parametrize(
    "origin", [None, "null", "http://elsewhere.example", "http://[", "http://127.0.0.1:1"]
)
async def test_forms_and_streams_of_other_pages_are_refused(origin: str | None) -> None:
    headers = {} if origin is None else {"Origin": origin}
    async with serving() as browser:
        async with browser.post(PREFIX, data={"password": PASSWORD}, headers=headers) as refused:
            assert (refused.status, refused.cookies.get(COOKIE)) == (403, None)
            assert f"a page of {origin or 'nobody'}, not of 127.0.0.1:" in await refused.text()
        await log_in(browser)
        with pytest.raises(aiohttp.WSServerHandshakeError, match="403"):
            await browser.ws_connect(f"{PREFIX}0/stream", headers=headers)


async def test_a_form_goes_to_the_login_alone() -> None:
    async with (
        serving() as browser,
        browser.post(f"{PREFIX}0/", data={"password": PASSWORD}, headers=own(browser)) as refused,
    ):
        assert refused.status == 401


async def test_a_page_may_be_in_no_frame_and_in_no_shared_cache() -> None:
    async with serving() as browser, browser.get(PREFIX) as page:
        assert "frame-ancestors 'none'" in page.headers["Content-Security-Policy"]
        assert page.headers["Cache-Control"].startswith("private")
        assert page.headers["Referrer-Policy"] == "same-origin"


# The cookie


@pytest.mark.parametrize(("scheme", "secure"), [("http", False), ("https", True)])
async def test_the_cookie_is_for_this_page_alone_and_secure_where_the_connection_is(
    scheme: str, secure: bool
) -> None:
    async with serving() as browser:
        cookie = (await log_in(browser, **{"X-Forwarded-Proto": scheme})).cookies[COOKIE]
    assert (cookie["path"], cookie["samesite"], cookie["httponly"]) == (PREFIX, "Strict", True)
    assert (bool(cookie["secure"]), cookie["max-age"]) == (secure, str(COOKIE_SECONDS))
    expires, _, _ = cookie.value.partition(".")
    assert abs(int(expires) - time.time() - COOKIE_SECONDS) < WITHIN
    assert cookie.value == signed(expires)


async def test_a_cookie_is_valid_until_it_expires_and_for_one_environment_secret_and_password() -> None:
    later = int(time.time()) + 600
    genuine = signed(later)
    for value, status in {
        genuine: 200,
        signed(int(time.time()) - 1): 401,
        genuine.replace(str(later), str(later + 1)): 401,
        signed(later, name="other"): 401,
        signed(later, secret="other"): 401,
        signed(later, password="other"): 401,
        str(later): 401,
        f"{later}.": 401,
        f"{later}.{'0' * 64}": 401,
        f"{later}.ü": 401,
        ".": 401,
        "": 401,
    }.items():
        async with serving() as browser:
            headers = {"Cookie": f"{COOKIE}={value}"}
            async with browser.get(PREFIX, headers=headers) as answer:
                assert answer.status == status, value


# Guessing


async def test_after_five_wrong_passwords_an_address_waits_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    # Not for the event loop.
    monkeypatch.setattr(desktop, "time", SimpleNamespace(monotonic=lambda: now, time=time.time))
    async with serving() as browser:
        for _ in range(MAX_WRONG_TRIES):
            assert (await log_in(browser, "wrong")).status == 401
            now += 2.5
        refused = await log_in(browser)
        assert (refused.status, refused.headers["Retry-After"]) == (429, "48")
        assert "Too many wrong passwords. Try again in 48 seconds." in await refused.text()
        now = 1000.0 + WRONG_SECONDS - 0.5
        assert (await log_in(browser)).status == 429
        now = 1000.0 + WRONG_SECONDS
        assert (await log_in(browser, "wrong")).status == 401
        assert (await log_in(browser)).status == 429
        now += 2.5  # a minute after the second one
        assert (await log_in(browser)).status == 303


async def test_the_right_password_lets_an_address_begin_anew() -> None:
    async with serving() as browser:
        for _ in range(2):
            for _ in range(MAX_WRONG_TRIES - 1):
                assert (await log_in(browser, "wrong")).status == 401
            assert (await log_in(browser)).status == 303


def test_the_address_that_was_wrong_longest_ago_is_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(desktop, "_MAX_ADDRESSES", 2)
    pages = DesktopPages(NAME, SECRET, PASSWORD, [])
    for address in ("a", "b", *["a"] * (MAX_WRONG_TRIES - 1), "c"):
        pages._record_wrong_try(address)
    assert list(pages._wrong_tries) == ["a", "c"]
    assert pages._seconds_until_retry("a") > 0 >= pages._seconds_until_retry("b")


async def test_a_form_is_read_to_its_limit_and_for_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving() as browser:
        padded = "x" * desktop._FORM_BYTES + f"&password={PASSWORD}"
        async with browser.post(PREFIX, data=padded, headers=own(browser)) as refused:
            assert refused.status == 401
        monkeypatch.setattr(desktop, "_FORM_SECONDS", 0.05)

        async def slow() -> AsyncIterator[bytes]:
            yield b"password="
            await asyncio.sleep(WITHIN)

        async with browser.post(PREFIX, data=slow(), headers=own(browser)) as refused:
            assert refused.status == 408


# The stream


@pytest.mark.parametrize("failures", [0, 2])
async def test_a_stream_goes_both_ways_also_to_a_desktop_that_is_restarted(
    failures: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(desktop, "_RETRY_SECONDS", 0.01)
    async with serving(failures=failures) as browser:
        await log_in(browser)
        async with browser.ws_connect(
            f"{PREFIX}1/stream", headers=own(browser), protocols=desktop.PROTOCOLS, compress=15
        ) as stream:
            assert (stream.protocol, stream.compress) == ("binary", 0)
            await stream.send_str("no picture")
            await stream.send_bytes(b"to the desktop")
            assert await stream.receive_bytes() == b"to the desktop"
            await stream.send_bytes(b"end")
            assert (await stream.receive()).type is WSMsgType.CLOSE
    assert not caplog.records


async def test_a_worker_s_stream_ends_with_the_browser_s() -> None:
    async with serving() as browser:
        await log_in(browser)
        async with browser.ws_connect(f"{PREFIX}0/stream", headers=own(browser)) as stream:
            await stream.send_bytes(b"to the desktop")
            await stream.receive_bytes()
            ENDED.clear()
        await ENDED.wait()


async def test_where_there_is_no_desktop_the_browser_is_told_to_try_later(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(desktop, "_RETRY_SECONDS", 0.01)
    monkeypatch.setattr(desktop, "_CONNECT_SECONDS", 0.05)
    async with serving(failures=10_000) as browser:
        await log_in(browser)
        async with browser.ws_connect(f"{PREFIX}1/stream", headers=own(browser)) as stream:
            closed = await stream.receive()
            assert (closed.data, closed.extra) == (WSCloseCode.TRY_AGAIN_LATER, "no desktop now")
    assert not caplog.records
