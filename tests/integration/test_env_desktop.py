"""The desktop of an environment, seen as a person sees it: in Chromium, behind the login page."""

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp
import httpx
import psutil
import pytest

from aworld_train.env import EnvConnection, down, up
from aworld_train.errors import UsageError
from aworld_train.serving.env_gateway.desktop import MAX_WRONG_TRIES
from aworld_train.serving.manifest import Manifest, ServerEntry
from aworld_train.serving.worker.launcher import CommandPaths, Spawner
from tests.browser import open_browser
from tests.environments import call, eventually, need_docker, session

if TYPE_CHECKING:
    from playwright.async_api import Page

ARTEFACTS = "AWORLD_TRAIN_TEST_ARTEFACTS"
"""Folder in which screenshots are kept."""
# The first that needs the image makes it.
pytestmark = pytest.mark.timeout(1800)

NAME = "vnc-test"
BLUE = (0x34, 0x65, 0xA4)
YELLOW = (0xF5, 0xB7, 0x00)
RED = (0xE0, 0x40, 0x40)
# bsetroot comes with the window manager, wish with x11vnc.
_PAINT = "bsetroot -solid '#3465a4'; "
_OPEN_WINDOW = """
echo 'wm title . {{opened by a tool}}
pack [label .l -text {{An agent was here}} -font {{Sans 24}} -background {} -padx 60 -pady 40]' > window.tcl
setsid wish window.tcl > /dev/null 2>&1 &
"""
# The share of the canvas that has this colour, give or take what encodings do to it.
_SHARE = """([red, green, blue]) => {
    const canvas = document.querySelector('#noVNC_container canvas');
    if (!canvas || !canvas.width) return 0;
    const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
    let found = 0;
    for (let at = 0; at < data.length; at += 4)
        if (Math.abs(data[at] - red) < 4 && Math.abs(data[at + 1] - green) < 4
            && Math.abs(data[at + 2] - blue) < 4) found++;
    return 4 * found / data.length;
}"""


@pytest.fixture(scope="module")
def shown() -> Iterator[EnvConnection]:
    """One worker with a desktop."""
    need_docker()
    yield up("gaia-mcp-server", name=NAME, backend="docker", workers=1, desktop=True, wait=120)
    down(NAME)


@asynccontextmanager
async def open_page() -> AsyncIterator["Page"]:
    """A page of a real browser."""
    async with open_browser() as browser:
        yield await browser.new_page()


async def log_in(page: "Page", shown: EnvConnection, password: str | None) -> None:
    await page.goto(str(shown.vnc_url))
    await page.get_by_label("Password").fill(password or "")
    await page.get_by_role("button", name="Log in").click()


async def share(page: "Page", colour: tuple[int, int, int]) -> float:
    """How much of the picture that the page shows has this colour."""
    return float(await page.evaluate(_SHARE, colour))


async def wait_for_share(page: "Page", colour: tuple[int, int, int], least: float) -> None:
    deadline = time.monotonic() + 30
    while await share(page, colour) < least:
        assert time.monotonic() < deadline, f"{colour} was not seen within 30 seconds"
        await page.wait_for_timeout(200)


async def keep_screenshot(page: "Page", folder: Path, name: str) -> None:
    picture = await page.screenshot(path=folder / name)
    if artefact_folder := os.environ.get(ARTEFACTS):
        keep(Path(artefact_folder) / name, picture)


def has_command(pid: int, command: list[str]) -> bool:
    return psutil.Process(pid).cmdline() == command


def keep(file: Path, content: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)


async def test_who_types_the_password_sees_what_tools_draw_and_a_wipe_takes_it_away(
    shown: EnvConnection, tmp_path: Path
) -> None:
    async with open_page() as page:
        await log_in(page, shown, "not the password")
        assert "not the password of this environment" in await page.get_by_role("alert").inner_text()
        await keep_screenshot(page, tmp_path, "desktop-login.png")

        await log_in(page, shown, shown.vnc_password)
        await page.get_by_role("link", name="worker 0").click()
        await page.wait_for_selector("#noVNC_container canvas")
        async with session(shown) as opened:
            await call(opened, "execute_command", command=_PAINT + _OPEN_WINDOW.format("#f5b700"))
            await wait_for_share(page, BLUE, 0.8)
            await wait_for_share(page, YELLOW, 0.02)
            await keep_screenshot(page, tmp_path, "desktop-drawn.png")
        async with session(shown) as opened:
            await call(opened, "execute_command", command=_OPEN_WINDOW.format("#e04040"))
            await wait_for_share(page, RED, 0.02)  # the page has found the new desktop by itself
            await keep_screenshot(page, tmp_path, "desktop-of-the-next-session.png")
            assert await share(page, BLUE) == await share(page, YELLOW) == 0.0


async def test_without_the_cookie_everything_is_refused(shown: EnvConnection) -> None:
    async with httpx.AsyncClient(base_url=str(shown.vnc_url)) as http:
        for path in ("", "0/", "7/", "novnc/vnc.html", "novnc/../0/", "0/stream", "nothing"):
            refused = await http.get(path)
            assert refused.status_code == 401, path
            assert "canvas" not in refused.text and 'type="password"' in refused.text
        forged = f"{2**40}.{'0' * 64}"
        http.cookies.set(f"aworld-vnc-{NAME}", forged)
        assert (await http.get("0/")).status_code == 401


async def test_the_cookie_is_for_this_page_alone(shown: EnvConnection) -> None:
    origin = f"http://{shown.ip}:{shown.port}"
    async with httpx.AsyncClient() as http:
        form = {"password": str(shown.vnc_password)}
        for stranger in ({}, {"Origin": "null"}, {"Origin": "http://elsewhere.example"}):
            refused = await http.post(str(shown.vnc_url), data=form, headers=stranger)
            assert refused.status_code == 403 and not refused.cookies
        welcome = await http.post(str(shown.vnc_url), data=form, headers={"Origin": origin})
    cookie = welcome.headers["Set-Cookie"]
    assert welcome.status_code == 303
    assert all(part in cookie for part in ("HttpOnly", "SameSite=Strict", "Path=/vnc/", "Max-Age="))
    assert str(shown.vnc_password) not in cookie and shown.token not in cookie


async def test_the_stream_needs_the_cookie_and_the_page(shown: EnvConnection) -> None:
    origin = f"http://{shown.ip}:{shown.port}"
    stream = f"{shown.vnc_url}0/stream"
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as http:
        with pytest.raises(aiohttp.WSServerHandshakeError, match="401"):
            await http.ws_connect(stream, headers={"Origin": origin})
        form = {"password": str(shown.vnc_password)}
        await http.post(str(shown.vnc_url), data=form, headers={"Origin": origin}, allow_redirects=False)
        with pytest.raises(aiohttp.WSServerHandshakeError, match="403"):
            await http.ws_connect(stream, headers={"Origin": "http://elsewhere.example"})
        async with http.ws_connect(stream, headers={"Origin": origin}) as opened:
            assert await opened.receive_bytes(timeout=10) == b"RFB 003.008\n"


async def test_viewers_come_and_go_and_leave_no_process_behind(shown: EnvConnection) -> None:
    origin = {"Origin": f"http://{shown.ip}:{shown.port}"}
    viewing = {"command": "grep -lx x11vnc /proc/[0-9]*/comm | wc -l", "output_format": "text"}
    async with (
        session(shown) as opened,
        aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as http,
    ):
        form = {"password": str(shown.vnc_password)}
        await http.post(str(shown.vnc_url), data=form, headers=origin, allow_redirects=False)
        for _ in range(3):
            viewers = [await http.ws_connect(f"{shown.vnc_url}0/stream", headers=origin) for _ in range(5)]
            assert {await viewer.receive_bytes(timeout=10) for viewer in viewers} == {b"RFB 003.008\n"}
            assert await call(opened, "execute_command", **viewing) == "5"
            for viewer in viewers:
                await viewer.close()
            for _ in range(50):
                if (remaining := await call(opened, "execute_command", **viewing)) == "0":
                    break
            assert remaining == "0"
        for attempt in range(40):  # those who leave at once, at every moment of its start
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(attempt / 1000):
                    await http.ws_connect(f"{shown.vnc_url}0/stream", headers=origin)
        assert await call(opened, "execute_command", command="echo well", output_format="text") == "well"
    async with session(shown) as opened:
        assert await call(opened, "execute_command", command="echo well", output_format="text") == "well"


async def test_guessing_is_slowed_down(shown: EnvConnection) -> None:
    headers = {"Origin": f"http://{shown.ip}:{shown.port}"}
    async with httpx.AsyncClient() as http:
        for _ in range(MAX_WRONG_TRIES):
            refused = await http.post(str(shown.vnc_url), data={"password": "guess"}, headers=headers)
        assert refused.status_code == 401
        form = {"password": str(shown.vnc_password)}
        limited = await http.post(str(shown.vnc_url), data=form, headers=headers)
    assert limited.status_code == 429 and 0 < int(limited.headers["Retry-After"]) <= 60


def test_a_desktop_is_only_for_images_that_have_one() -> None:
    with pytest.raises(UsageError, match="desktop: true"):
        up("calculator-mcp-server", name="vnc-none", backend="process", desktop=True)
    with pytest.raises(UsageError, match="docker backend"):
        up("gaia-mcp-server", name="vnc-none", backend="process", desktop=True)


async def test_an_order_that_is_given_up_does_not_take_the_answer_to_the_next(tmp_path: Path) -> None:
    entry = ServerEntry(command=("sleep", "60"))
    manifest = Manifest("one", {"sleeper": entry})
    spawner = Spawner(manifest, CommandPaths(sys.executable, tmp_path, tmp_path), os.environ, ())
    await spawner.ready()
    null = os.open(os.devnull, os.O_RDWR)
    try:
        cancelled = asyncio.create_task(spawner.spawn("sleeper", entry, null, null))
        await asyncio.sleep(0)
        cancelled.cancel()
        for seconds in ("61", "62"):
            command = ServerEntry(command=("sleep", seconds))
            pid = await spawner.spawn("sleeper", command, null, null)
            assert eventually(partial(has_command, pid, ["sleep", seconds]))
    finally:
        sleepers = psutil.Process(spawner.pid).children()
        await spawner.close()
        os.close(null)
        for sleeper in sleepers:
            sleeper.kill()
