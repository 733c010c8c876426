"""The browser of a session: one Chromium, started when it is first used, that goes out through `proxy` alone.

Actions run one after the other. Numbers of elements are those of the page as it was last read; every action reads the
page anew, in the frame it then shows.
"""

import asyncio
import ctypes
import logging
import os
import re
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from mcp.server.fastmcp.exceptions import ToolError
from yarl import URL

from gaia_tools import upstream
from gaia_tools.addresses import checked
from gaia_tools.browser.proxy import REFUSED, Proxy
from gaia_tools.files import shown, workspace

if TYPE_CHECKING:
    from playwright.async_api import Browser as Chromium
    from playwright.async_api import (
        BrowserContext,
        Dialog,
        Download,
        Frame,
        Locator,
        Page,
        Playwright,
        Request,
    )

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
VARIABLES = "BROWSERUSE_LLM_"
"""What the variables of the language model begin with, which neither Chromium nor its driver has to know."""
SECONDS = 30.0
_logger = logging.getLogger(__name__)
_START_SECONDS = 60.0
_ACTION_SECONDS = 10.0
_READ_SECONDS = 20.0  # many browsers starting at once keep a page from answering for a while
_CLOSE_SECONDS = 5.0
_DOWNLOAD_SECONDS = 120.0
_QUIET_SECONDS = 1.5
_MOMENT_SECONDS = 0.2
_WIDTH, _HEIGHT = 1280, 800
_MAX_TABS = 8
_MAX_FRAMES = 10
_MAX_HEIGHT = 8000
_MAX_NOTES = 20
_GONE = "has been closed"  # what Playwright says when the browser, or its driver, has ended
_BROKEN_OFF = (
    "is interrupted by another navigation",  # that to the error page of the address before, for one
    "net::ERR_NETWORK_CHANGED",  # this machine got or lost a network address, as by a container of its own
)
_ERROR_PAGE = "chrome-error://"
_PDF = "application/pdf"
_SAVE = """() => {
  let name = location.pathname.split("/").pop() || "document";
  try { name = decodeURIComponent(name); } catch { /* not encoded */ }
  const download = /\\.pdf$/i.test(name) ? name : name + ".pdf";
  Object.assign(document.createElement("a"), { href: location.href, download }).click();
}"""
_TRIES = 3
_CLONE_NEWUSER = 0x10000000  # from linux/sched.h
_PASSED = ("PATH", "HOME", "TMPDIR", "LANG", "TZ", "DISPLAY")
_FLAGS = (
    # Out through the proxy and no other way: neither names nor UDP, and this machine is no exception.
    "--proxy-bypass-list=<-loopback>",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--disable-quic",
    "--disable-auto-reload",
    "--disable-domain-reliability",
    "--disk-cache-size=52428800",
    "--mute-audio",
    f"--window-size={_WIDTH},{_HEIGHT}",
)
_NO_WEBRTC = "for (const name of ['RTCPeerConnection', 'webkitRTCPeerConnection']) delete window[name];"
_BARE = re.compile(r"[a-z0-9.-]+\.[a-z]{2,}(:\d+)?([/?#].*)?", re.IGNORECASE)  # example.com/page
_SCRIPT = Path(__file__).with_name("page.js")


@dataclass(frozen=True)
class View:
    """A page as text, with ``status`` where it was just opened; ``notes`` are downloads, dialogs and new tabs."""

    url: str
    title: str
    status: int | None
    text: str
    elements: int
    notes: tuple[str, ...]


class Browser:
    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._proxy: Proxy | None = None
        self._playwright: Playwright | None = None
        self._chromium: Chromium | None = None
        self._context: BrowserContext | None = None
        self._page: Page | None = None
        self._frames: list[tuple[int, Any]] = []
        self._elements = 0
        self._notes: list[str] = []
        self._going_to = ""
        self._last_download: Path | None = None
        self._pdf: tuple[str, Path] | None = None
        self._downloads: set[asyncio.Task[None]] = set()
        self._download_began = asyncio.Event()

    @staticmethod
    def program() -> str | None:
        return next((found for name in PROGRAMS if (found := shutil.which(name))), None)

    async def close(self) -> None:
        chromium, playwright, proxy = self._chromium, self._playwright, self._proxy
        self._chromium = self._playwright = self._proxy = self._context = self._page = None
        self._frames, self._elements, self._download_began = [], 0, asyncio.Event()
        for task in self._downloads:
            task.cancel()
        endings = [
            *([chromium.close] if chromium is not None else []),
            *([playwright.stop] if playwright is not None else []),
            *([proxy.close] if proxy is not None else []),
        ]
        for end in endings:
            with suppress(Exception):
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await end()

    async def open(self, url: str) -> View:
        address = _checked(url)
        async with self._doing(f"Opening {address}", SECONDS + _DOWNLOAD_SECONDS):
            for _ in range(_TRIES):
                status, trouble = await self._go(address)
                if _GONE in trouble:  # the browser had ended, and nobody had noticed
                    await self.close()
                elif not any(reason in trouble for reason in _BROKEN_OFF):
                    break
                await asyncio.sleep(_QUIET_SECONDS)  # until what broke it off has come to its end
            if "Download is starting" in trouble or "net::ERR_ABORTED" in trouble:
                with suppress(TimeoutError):  # it was announced, and may not have begun yet
                    await asyncio.wait_for(self._download_began.wait(), _ACTION_SECONDS)
                await self._finish_downloads()
            elif "Timeout" in trouble:
                # Noted when it is shown: the note is about this page, which may not respond even to be read.
                view = await self._view(status)
                note = f"{address} was not complete within {SECONDS:g} seconds; this is what there is."
                return replace(view, notes=(*view.notes, note))
            elif trouble:
                raise ToolError(f"{address} cannot be opened: {trouble}")
            return await self._view(status)

    async def _go(self, address: str) -> tuple[int | None, str]:
        page = await self._running()
        proxy = self._proxy
        assert proxy is not None
        before = proxy.refused
        self._download_began.clear()
        status, trouble, stopped, has_arrived = None, "", False, False
        went = [address]

        def follow(request: "Request") -> None:
            if request.is_navigation_request() and request.frame == page.main_frame:
                went.append(request.url)

        def arrive(frame: "Frame") -> None:
            nonlocal has_arrived
            has_arrived = has_arrived or frame == page.main_frame

        page.on("request", follow)
        page.on("framenavigated", arrive)
        try:
            answer = await page.goto(address, wait_until="domcontentloaded", timeout=SECONDS * 1000)
            if answer is not None:
                status, stopped = answer.status, REFUSED in answer.headers
        except Exception as error:
            trouble = _first_line(error)
            stopped = "net::ERR_TUNNEL_CONNECTION_FAILED" in trouble
            if "net::ERR" in trouble and "net::ERR_ABORTED" not in trouble:
                # The page that tells of it comes later, and would cross what is opened next.
                with suppress(Exception):
                    await page.wait_for_url(
                        f"{_ERROR_PAGE}**", wait_until="commit", timeout=_CLOSE_SECONDS * 1000
                    )
        finally:
            page.remove_listener("request", follow)
            page.remove_listener("framenavigated", arrive)
        if "Timeout" in trouble and not has_arrived:
            await self._stop_loading(page)
            still = f" The browser still shows {page.url}." if page.url != "about:blank" else ""
            raise ToolError(f"{address} did not answer within {SECONDS:g} seconds and was given up.{still}")
        # Also of what Chromium asks for on its own.
        reasons = {one.target: one.reason for one in proxy.since(before)}
        if stopped and (reason := next(filter(None, map(reasons.get, map(_target, reversed(went)))), None)):
            raise ToolError(reason)
        return status, trouble

    async def _stop_loading(self, page: "Page") -> None:
        assert self._context is not None
        with suppress(Exception):
            async with asyncio.timeout(_CLOSE_SECONDS):
                session = await self._context.new_cdp_session(page)
                await session.send("Page.stopLoading")
                await session.detach()

    async def look(self, show_links: bool = False) -> View:
        async with self._doing("Reading the page", SECONDS):
            return await self._view(show_links=show_links)

    async def click(self, number: int) -> View:
        async with self._doing(f"Clicking element {number}", SECONDS + _DOWNLOAD_SECONDS):
            element = await self._element(number)
            await element.click(timeout=_ACTION_SECONDS * 1000)
            return await self._settled()

    async def type(self, number: int, text: str, submit: bool) -> View:
        async with self._doing(f"Typing into element {number}", SECONDS):
            element = await self._element(number)
            await element.fill(text, timeout=_ACTION_SECONDS * 1000)
            if submit:
                await element.press("Enter", timeout=_ACTION_SECONDS * 1000)
            return await self._settled()

    async def select(self, number: int, option: str) -> View:
        async with self._doing(f"Choosing from element {number}", SECONDS):
            element = await self._element(number)
            labels: list[str] = await element.evaluate(
                "node => [...(node.options || [])].flatMap(one => [one.label.trim(), one.value])"
            )
            if option not in labels:
                raise ToolError(
                    f"Element {number} has no option {option!r}. It has: {', '.join(labels[::2])[:500]}."
                )
            by = {"label": option} if option in labels[::2] else {"value": option}
            await element.select_option(**by, timeout=_ACTION_SECONDS * 1000)  # type: ignore[arg-type]
            return await self._settled()

    async def scroll(self, direction: Literal["down", "up"], screens: int) -> View:
        async with self._doing("Scrolling", SECONDS) as page:
            for _ in range(screens):
                await page.mouse.wheel(0, _HEIGHT * 0.9 * (1 if direction == "down" else -1))
                await asyncio.sleep(0.1)
            return await self._settled()

    async def back(self) -> View:
        async with self._doing("Going back", SECONDS) as page:
            if await page.go_back(wait_until="domcontentloaded", timeout=SECONDS * 1000) is None:
                self._note("There is no page before this one.")
            return await self._settled()

    async def picture(self, full_page: bool) -> bytes:
        async with self._doing("Taking a picture", SECONDS) as page:
            if not full_page:
                return await page.screenshot(timeout=SECONDS * 1000)
            tall: float = await page.evaluate("document.documentElement.scrollHeight")
            clip = {"x": 0, "y": 0, "width": _WIDTH, "height": max(min(tall, _MAX_HEIGHT), 1)}
            return await page.screenshot(full_page=True, clip=clip, timeout=SECONDS * 1000)  # type: ignore[arg-type]

    @asynccontextmanager
    async def _doing(self, what: str, seconds: float) -> AsyncIterator["Page"]:
        from playwright.async_api import Error

        async with self._turn:
            page = await self._running()
            try:
                async with asyncio.timeout(seconds):
                    yield page
            except ToolError as error:
                notes, self._notes = (
                    self._notes,
                    [],
                )  # they are about what failed, and not about the next page
                raise ToolError("\nNote: ".join([str(error), *notes])) from error
            except TimeoutError:
                raise ToolError(f"{what} took longer than {seconds:g} seconds.") from None
            except Error as error:
                if _GONE in str(error):
                    await self.close()
                    raise ToolError(f"{what} failed: the browser ended. Open the page again.") from error
                raise ToolError(f"{what} failed: {_first_line(error)}") from error

    def _is_up(self) -> bool:
        return self._chromium is not None and self._chromium.is_connected()

    async def _running(self) -> "Page":
        if not self._is_up():
            await self.close()
            await self._start()
        assert self._context is not None
        if self._page is None or self._page.is_closed():
            others = self._context.pages
            self._page = others[-1] if others else await self._context.new_page()
        return self._page

    async def _start(self) -> None:
        from playwright.async_api import async_playwright

        program = self.program()
        if program is None:
            _logger.error(
                "Chromium is not installed (Debian: chromium), or the image was built without this server."
            )
            raise ToolError("There is no browser in this environment; read_url reads pages without one.")
        self._proxy = Proxy()
        await self._proxy.start()
        try:
            async with asyncio.timeout(_START_SECONDS):
                with _without_keys():
                    self._playwright = await async_playwright().start()
                self._chromium = await self._playwright.chromium.launch(
                    executable_path=program,
                    headless=not os.environ.get("DISPLAY"),
                    args=[*_FLAGS, f"--proxy-server={self._proxy.url}"],
                    env={name: os.environ[name] for name in _PASSED if name in os.environ},
                    chromium_sandbox=_can_have_sandbox(),
                    handle_sigint=False,
                    handle_sigterm=False,
                    handle_sighup=False,
                )
                version = self._chromium.version.partition(".")[0]
                self._context = await self._chromium.new_context(
                    viewport={"width": _WIDTH, "height": _HEIGHT},
                    locale="en-US",
                    accept_downloads=True,
                    # Its own says "HeadlessChrome", for which many sites have no page.
                    user_agent="Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) "
                    f"Chrome/{version}.0.0.0 Safari/537.36",
                )
        except TimeoutError:
            await self.close()
            raise ToolError(f"Chromium did not start within {_START_SECONDS:g} seconds.") from None
        except Exception as error:  # a driver that does not start is none of Playwright's own errors
            await self.close()
            raise ToolError(f"Chromium does not start: {_first_line(error)}") from error
        await self._context.add_init_script(_NO_WEBRTC)
        self._context.on("page", self._take_page)
        self._page = await self._context.new_page()

    def _take_page(self, page: "Page") -> None:
        assert self._context is not None
        if self._page is not None:
            self._note("A new tab was opened; it is the page now.")
        self._page = page
        page.on("request", self._take_request)
        page.on("dialog", self._answer_dialog)
        page.on("download", self._take_download)
        page.on("close", lambda _: self._note("The tab was closed.") if page is self._page else None)
        page.set_default_timeout(_ACTION_SECONDS * 1000)
        for old in self._context.pages[:-_MAX_TABS]:
            self._keep(old.close())

    def _take_request(self, request: "Request") -> None:
        # The frame of a request of a service worker, or of a page not there yet, cannot be asked for.
        with suppress(Exception):
            if request.is_navigation_request() and request.frame.parent_frame is None:
                self._going_to = request.url

    def _address(self, page: "Page") -> str:
        return self._going_to if page.url.startswith(_ERROR_PAGE) and self._going_to else page.url

    async def _answer_dialog(self, dialog: "Dialog") -> None:
        agreed = dialog.type in ("alert", "beforeunload")
        what = "closed" if agreed else "declined"
        self._note(f"The page showed a dialog ({dialog.type}), which was {what}: {dialog.message[:500]}")
        await (dialog.accept() if agreed else dialog.dismiss())

    def _take_download(self, download: "Download") -> None:
        self._download_began.set()
        self._keep(self._save(download))

    def _keep(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._downloads.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._downloads.discard(task)
        if not task.cancelled():
            task.exception()

    async def _save(self, download: "Download") -> None:
        target = _free_name(workspace(), download.suggested_filename)
        try:
            async with asyncio.timeout(_DOWNLOAD_SECONDS):
                await download.save_as(target)
        except TimeoutError:
            await download.cancel()
            self._note(
                f"The download of {target.name} took longer than {_DOWNLOAD_SECONDS:g} s and was ended."
            )
        except Exception as error:
            self._note(f"The download of {target.name} failed: {_first_line(error)}")
        else:
            self._last_download = target
            self._note(f"Downloaded into the workspace: {shown(target)} ({target.stat().st_size} bytes).")
            await download.delete()

    async def _finish_downloads(self) -> None:
        if self._downloads:
            await asyncio.wait(self._downloads)

    def _note(self, text: str) -> None:
        if len(self._notes) < _MAX_NOTES:
            self._notes.append(text)

    async def _element(self, number: int) -> "Locator":
        if not 1 <= number <= self._elements:
            there = f"1 to {self._elements}" if self._elements else "none"
            raise ToolError(
                f"There is no element {number} on the page as it was last read ({there}); read it again."
            )
        frame = next(frame for first, frame in reversed(self._frames) if number >= first)
        found: Locator = frame.locator(f'[data-tool-number="{number}"]').first
        if frame.is_detached() or await found.count() == 0:
            raise ToolError(f"Element {number} is no longer on the page; read it again.")
        return found

    async def _settled(self) -> View:
        await asyncio.sleep(_MOMENT_SECONDS)
        for _ in range(_TRIES):
            page = await self._running()
            for state in ("domcontentloaded", "networkidle"):
                with suppress(Exception):
                    seconds = SECONDS / 2 if state == "domcontentloaded" else _QUIET_SECONDS
                    await page.wait_for_load_state(state, timeout=seconds * 1000)  # type: ignore[arg-type]
            await self._finish_downloads()
            view = await self._view()
            if page is self._page:
                break
            self._notes = [*view.notes, *self._notes]  # another tab was opened, or this one closed, meanwhile
        return view

    async def _view(self, status: int | None = None, show_links: bool = False) -> View:
        page = await self._running()
        self._frames, number, texts = [], 1, []
        for frame in page.frames[:_MAX_FRAMES]:
            found = await self._read(frame, number, show_links)
            if found is None and frame is page.main_frame:
                await self._give_up(page)
            if found is None:
                continue
            if found["next"] > number:
                self._frames.append((number, frame))
            number = found["next"]
            if frame is page.main_frame and found["media"] == _PDF:
                texts.append(await self._pdf_note(page))
                break
            if frame is page.main_frame:
                texts.append(found["text"])
            elif found["text"]:
                texts.append(f"--- frame {frame.url[:200]} ---\n{found['text']}")
        self._elements = number - 1
        notes, self._notes = tuple(self._notes), []
        title = ""
        with suppress(Exception):
            async with asyncio.timeout(_ACTION_SECONDS):
                title = await page.title()
        return View(self._address(page), title, status, "\n\n".join(texts), self._elements, notes)

    async def _pdf_note(self, page: "Page") -> str:
        """What is said of a PDF, which Chromium shows as a picture: where it was saved, and what reads it."""
        if self._pdf is None or self._pdf[0] != page.url or not self._pdf[1].exists():
            self._pdf = None
            with suppress(Exception):  # what went wrong with the download is noted
                async with asyncio.timeout(_DOWNLOAD_SECONDS):
                    self._last_download = None
                    async with page.expect_download(timeout=SECONDS * 1000):
                        await page.evaluate(_SAVE)
                    await self._finish_downloads()
            if self._last_download is not None:
                self._pdf = page.url, self._last_download
        if self._pdf is None:
            return "This is a PDF file, which is not shown as text. It could not be saved: download it, to be read."
        return (
            f"This is a PDF file, which is not shown as text. It is saved as {shown(self._pdf[1])}: "
            "read it with convert_document_to_markdown."
        )

    async def _give_up(self, page: "Page") -> NoReturn:
        assert self._context is not None
        address = self._going_to or page.url
        self._page = None
        with suppress(Exception):
            async with asyncio.timeout(_CLOSE_SECONDS):
                await page.close()
        self._page = await self._context.new_page()
        raise ToolError(f"{address} does not respond, and was closed.")

    async def _read(self, frame: Any, first: int, show_links: bool) -> dict[str, Any] | None:
        for _ in range(3):
            try:
                async with asyncio.timeout(_READ_SECONDS):
                    found: dict[str, Any] = await frame.evaluate(
                        _SCRIPT.read_text(), {"first": first, "showLinks": show_links}
                    )
                    return found
            except TimeoutError:
                return None
            except Exception:
                with suppress(Exception):
                    await frame.wait_for_load_state("domcontentloaded", timeout=_ACTION_SECONDS * 1000)
        return None


def _checked(url: str) -> str:
    text = url.strip()
    if text == "about:blank":
        return text
    return str(checked(f"https://{text}" if _BARE.fullmatch(text) else text))


def _target(url: str) -> str:
    with suppress(ValueError):
        parsed = URL(url)
        return f"{parsed.raw_host}:{parsed.port}"
    return ""


def _free_name(folder: Path, suggested: str) -> Path:
    name = re.sub(r"[^\w.() -]", "_", Path(suggested).name)[-100:].lstrip(".") or "download"
    target = folder / name
    number = 1
    while target.exists():
        number += 1
        target = folder / f"{Path(name).stem}-{number}{Path(name).suffix}"
    return target


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0][:500] or type(error).__name__


@contextmanager
def _without_keys() -> Iterator[None]:
    """Programs started meanwhile do not have the keys: any process of this user can read a program's variables."""
    hidden = {
        name: value
        for name, value in os.environ.items()
        if name.startswith(VARIABLES) or name in upstream.VARIABLES
    }
    for name in hidden:
        del os.environ[name]
    try:
        yield
    finally:
        os.environ.update(hidden)


def _can_have_sandbox() -> bool:
    """Whether Chromium can have a sandbox of its own: not in containers, which have no namespaces, nor as root."""
    if os.geteuid() == 0:
        return False
    pid = os.fork()
    if pid == 0:
        os._exit(0 if ctypes.CDLL(None).unshare(_CLONE_NEWUSER) == 0 else 1)
    return os.waitpid(pid, 0)[1] == 0
