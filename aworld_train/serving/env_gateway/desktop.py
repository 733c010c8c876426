"""The pages under ``/vnc/`` that show the desktops of the workers to users who know the environment's password.

Without a signed cookie there is only the login page. The key of the signature contains the password, so that a new one
ends every login; the cookie's name contains the environment, because cookies do not distinguish ports. Forms and
WebSockets are accepted only from pages of this server, by their ``Origin``.
"""

import asyncio
import contextlib
import hashlib
import hmac
import html
import math
import time
from collections import deque
from collections.abc import Sequence
from urllib.parse import parse_qs, urlencode, urlsplit

import aiohttp
from aiohttp import WSCloseCode, WSMsgType, web
from aiohttp.typedefs import Handler, Middleware

from aworld_train.serving.env_gateway.worker_client import WorkerClient

PREFIX = "/vnc/"
NOVNC = "/usr/share/novnc"
PROTOCOLS = ("binary",)
COOKIE_SECONDS = 12 * 3600
MAX_WRONG_TRIES = 5
WRONG_SECONDS = 60.0
_MAX_ADDRESSES = 10_000
_FORM_BYTES = 4096
_FORM_SECONDS = 10.0
_CONNECT_SECONDS = 60.0
_ANSWER_SECONDS = 15.0
_RETRY_SECONDS = 0.3
_HEARTBEAT_SECONDS = 30.0
_HEADERS = {
    "Cache-Control": "private, no-cache",
    "Content-Security-Policy": (
        "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}


class DesktopPages:
    def __init__(self, name: str, secret: str, password: str, links: Sequence[WorkerClient]):
        self._name, self._password, self._links = name, password, links
        self._key = hmac.digest(secret.encode(), f"desktop {name} {password}".encode(), hashlib.sha256)
        self._cookie = f"aworld-vnc-{name}"
        self._wrong_tries: dict[str, deque[float]] = {}

    def application(self) -> web.Application:
        app = web.Application(middlewares=[self._access_check()])
        app.router.add_get("/", self.overview)
        app.router.add_post("/", self.login)
        app.router.add_get(r"/{number:\d+}/", self.desktop)
        app.router.add_get(r"/{number:\d+}/stream", self.stream)
        app.router.add_static("/novnc/", NOVNC)
        app.on_response_prepare.append(_add_headers)
        return app

    async def overview(self, _: web.Request) -> web.Response:
        rows = "".join(
            f'<li><a href="{link.number}/">worker {link.number}</a> <small>{link.state}</small></li>'
            for link in self._links
        )
        return _page(f"Desktops of {self._name}", f"<ul>{rows}</ul>")

    async def login(self, request: web.Request) -> web.Response:
        address = request.remote or ""
        if (seconds := self._seconds_until_retry(address)) > 0:
            response = self._login_page(429, f"Too many wrong passwords. Try again in {seconds} seconds.")
            response.headers["Retry-After"] = str(seconds)
            return response
        password = await _form_field(request, "password")
        if not hmac.compare_digest(password.encode(), self._password.encode()):
            self._record_wrong_try(address)
            return self._login_page(401, "That is not the password of this environment.")
        self._wrong_tries.pop(address, None)
        response = web.Response(status=303, headers={"Location": PREFIX})
        expires = int(time.time()) + COOKIE_SECONDS
        response.set_cookie(
            self._cookie,
            f"{expires}.{self._signature(str(expires))}",
            max_age=COOKIE_SECONDS,
            path=PREFIX,
            httponly=True,
            samesite="Strict",
            secure=request.headers.get("X-Forwarded-Proto", request.scheme) == "https",
        )
        return response

    async def desktop(self, request: web.Request) -> web.Response:
        link = self._link(request)
        settings = {
            "autoconnect": "true",
            "reconnect": "true",  # a wipe ends the stream, and the viewer then shows the next desktop
            "reconnect_delay": "1000",
            "resize": "scale",
            "path": f"{PREFIX.lstrip('/')}{link.number}/stream",
        }
        return web.Response(status=302, headers={"Location": f"{PREFIX}novnc/vnc.html?{urlencode(settings)}"})

    async def stream(self, request: web.Request) -> web.StreamResponse:
        link = self._link(request)
        browser = web.WebSocketResponse(protocols=PROTOCOLS, compress=False, heartbeat=_HEARTBEAT_SECONDS)
        await browser.prepare(request)
        worker = await _connect(link)
        if worker is None:
            await browser.close(code=WSCloseCode.TRY_AGAIN_LATER, message=b"no desktop now")
            return browser
        both = [asyncio.create_task(_copy(worker, browser)), asyncio.create_task(_copy(browser, worker))]
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in both:
                task.cancel()
            await asyncio.gather(*both, return_exceptions=True)
            await worker.close()
        return browser

    def _access_check(self) -> Middleware:
        @web.middleware
        async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
            changes_state = request.method != "GET" or "Upgrade" in request.headers
            origin = request.headers.get("Origin", "")
            if changes_state and _host(origin) != request.host:
                reason = f"refused: this comes from a page of {origin or 'nobody'}, not of {request.host}"
                return web.Response(
                    status=403, body=reason.encode(errors="replace"), content_type="text/plain"
                )
            if self._is_logged_in(request) or (request.method == "POST" and request.path == PREFIX):
                return await handler(request)
            return self._login_page(401)

        return check

    def _is_logged_in(self, request: web.Request) -> bool:
        expires, _, signature = request.cookies.get(self._cookie, "").partition(".")
        if not (expires + signature).isascii():
            return False
        genuine = hmac.compare_digest(signature.encode(), self._signature(expires).encode())
        return genuine and int(expires) > time.time()

    def _signature(self, expires: str) -> str:
        return hmac.digest(self._key, expires.encode(), hashlib.sha256).hex()

    def _login_page(self, status: int, problem: str = "") -> web.Response:
        alert = f'<p role="alert">{html.escape(problem)}</p>' if problem else ""
        return _page(
            f"Desktops of {self._name}",
            f'<form method="post" action="{PREFIX}">{alert}<label for="password">Password</label>'
            '<input id="password" name="password" type="password" autocomplete="current-password" required autofocus>'
            "<button>Log in</button></form>"
            "<p><small>It was printed as <code>vnc_password</code> when the environment was started.</small></p>",
            status,
        )

    def _seconds_until_retry(self, address: str) -> int:
        tries = self._wrong_tries.get(address, deque())
        return math.ceil(tries[0] + WRONG_SECONDS - time.monotonic()) if len(tries) == MAX_WRONG_TRIES else 0

    def _record_wrong_try(self, address: str) -> None:
        tries = self._wrong_tries.pop(address, deque(maxlen=MAX_WRONG_TRIES))
        tries.append(time.monotonic())
        self._wrong_tries[address] = tries  # moved to the end: the first entry is the least recent
        if len(self._wrong_tries) > _MAX_ADDRESSES:
            del self._wrong_tries[next(iter(self._wrong_tries))]

    def _link(self, request: web.Request) -> WorkerClient:
        number = int(request.match_info["number"])
        if number >= len(self._links):
            raise web.HTTPNotFound(text=f"no worker {number}")
        return self._links[number]


async def _connect(link: WorkerClient) -> aiohttp.ClientWebSocketResponse | None:
    """The stream of its desktop; waits while it is being restarted, because noVNC would not try again."""
    deadline = time.monotonic() + _CONNECT_SECONDS
    while time.monotonic() < deadline:
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                return await link.connect("/desktop", PROTOCOLS)
        # RuntimeError: its client was just closed
        except (aiohttp.ClientError, TimeoutError, OSError, RuntimeError):
            await asyncio.sleep(_RETRY_SECONDS)
    return None


async def _copy(
    source: web.WebSocketResponse | aiohttp.ClientWebSocketResponse,
    target: web.WebSocketResponse | aiohttp.ClientWebSocketResponse,
) -> None:
    with contextlib.suppress(ConnectionError):
        async for message in source:
            if message.type is WSMsgType.BINARY:
                await target.send_bytes(message.data)


def _host(origin: str) -> str:
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return ""


async def _form_field(request: web.Request, name: str) -> str:
    body = bytearray()
    try:
        async with asyncio.timeout(_FORM_SECONDS):
            while len(body) < _FORM_BYTES and (chunk := await request.content.read(_FORM_BYTES)):
                body += chunk
    except TimeoutError as error:
        raise web.HTTPRequestTimeout from error
    fields = parse_qs(body[:_FORM_BYTES].decode(errors="replace"))
    return fields.get(name, [""])[0].strip()


async def _add_headers(_: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(_HEADERS)


_STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { max-width: 26rem; margin: 12vh auto 0; padding: 0 1rem; }
h1 { font-size: 1.25rem; }
label, input, button { display: block; font: inherit; }
input { box-sizing: border-box; width: 100%; margin: .25rem 0 1rem; padding: .5rem; }
button { padding: .5rem 1.25rem; }
[role=alert] { border-left: 3px solid #c62828; padding-left: .75rem; }
"""


def _page(title: str, body: str, status: int = 200) -> web.Response:
    title = html.escape(title)
    return web.Response(
        status=status,
        content_type="text/html",
        text=f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{_STYLE}</style></head><body><main><h1>{title}</h1>{body}</main></body></html>",
    )
