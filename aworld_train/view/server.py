"""The server of the page: on the loopback address, for one browser, reading only.

Four things stand between it and other pages, users and machines: it listens on 127.0.0.1; data are given only to the
cookie that the one-time token was exchanged for; a Host header of another name (DNS rebinding) and a request that
another site's page makes are refused; and the page's policy lets it run and load nothing but this package's files.
The files of the page itself hold no data and need no cookie, so that an address can be opened from anywhere.
"""

import asyncio
import contextlib
import hmac
import mimetypes
import secrets
from collections.abc import AsyncIterator, Mapping
from importlib import resources
from pathlib import Path
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.typedefs import Handler

from aworld_train.errors import AworldTrainError, UsageError
from aworld_train.masking import mask
from aworld_train.store.database import StoreUnreachable
from aworld_train.view.folder import NoSuchRun, RunsFolder
from aworld_train.view.routes import NotFound, add_routes, failure

HOST = "127.0.0.1"
PREFERRED_PORT = 8642
"""The port that is taken if it is free, so that addresses stay the same."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": POLICY,
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_HOST_NAMES = (HOST, "localhost", "::1")
_OWN_SITE = ("same-origin", "none")
_SECONDS_TO_END = 2.0


class BrowserSession:
    """A token that works once, and the cookie that it is exchanged for."""

    def __init__(self) -> None:
        self.token = secrets.token_urlsafe(32)
        self._cookie = secrets.token_urlsafe(32)
        self._redeemed = False

    def redeem(self, token: str) -> str | None:
        """The value of the cookie for the right token, the first time; None after it and for any other."""
        if self._redeemed or not hmac.compare_digest(token.encode(), self.token.encode()):
            return None
        self._redeemed = True
        return self._cookie

    def knows(self, cookie: str) -> bool:
        return self._redeemed and hmac.compare_digest(cookie.encode(), self._cookie.encode())


class PageServer:
    def __init__(self, runs: Path):
        self.session = BrowserSession()
        self.folder = RunsFolder(runs)
        self.port = 0
        self._files = static_files()

    def application(self) -> web.Application:
        app = web.Application(middlewares=[self._checks])
        app.router.add_get("/", self.page, allow_head=False)
        app.router.add_get("/static/{name:.+}", self.file, allow_head=False)
        add_routes(app, self.folder)
        app.on_response_prepare.append(_add_headers)
        return app

    @contextlib.asynccontextmanager
    async def running(self, port: int | None = None) -> AsyncIterator[str]:
        """Serve; gives the address with the token. ``port`` is by default ``PREFERRED_PORT``, or any free one."""
        runner = web.AppRunner(self.application(), access_log=None, shutdown_timeout=_SECONDS_TO_END)
        await runner.setup()
        try:
            self.port = await _listen(runner, port)
            yield f"http://{HOST}:{self.port}/?token={self.session.token}"
        finally:
            await runner.cleanup()
            await asyncio.to_thread(self.folder.close)

    async def page(self, request: web.Request) -> web.Response:
        """The page; the token is exchanged for the cookie first."""
        if "token" not in request.query:
            return _file("index.html", self._files["index.html"])
        query = request.rel_url.without_query_params("token").query_string
        response = web.Response(status=303, headers={"Location": f"/?{query}".rstrip("?")})
        cookie = self.session.redeem(request.query["token"])
        if cookie is not None:
            response.set_cookie(self._cookie_name, cookie, path="/", httponly=True, samesite="Strict")
        elif not self._knows(request):
            text = "This address has been used, or is of another start. Start `aworld-train view` again.\n"
            return web.Response(status=403, text=text)
        return response

    async def file(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        data = self._files.get(name)
        return failure(404, "usage", "No such file.") if data is None else _file(name, data)

    @property
    def _cookie_name(self) -> str:
        # Cookies do not distinguish ports.
        return f"aworld-train-view-{self.port}"

    def _knows(self, request: web.Request) -> bool:
        return self.session.knows(request.cookies.get(self._cookie_name, ""))

    @web.middleware
    async def _checks(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if _host_name(request.headers.get("Host", "")) not in _HOST_NAMES:
            return failure(421, "usage", "This server answers to 127.0.0.1 and localhost only.")
        if request.method != "GET":
            return failure(405, "usage", "This server only answers GET.")
        if request.path.startswith("/api/"):
            if request.headers.get("Sec-Fetch-Site", "none") not in _OWN_SITE:
                return failure(403, "usage", "Pages of other sites are not answered.")
            if not self._knows(request):
                return failure(401, "usage", "Open the address that `aworld-train view` printed, once.")
        try:
            return await handler(request)
        except web.HTTPNotFound:
            return failure(404, "usage", "No such address.")
        except (NoSuchRun, NotFound) as error:
            return failure(404, error.kind, error.message)
        except AworldTrainError as error:
            return failure(400, error.kind, error.message)
        except StoreUnreachable as error:
            return failure(503, "store", f"The store's database does not answer: {mask(str(error))}.")


def static_files() -> dict[str, bytes]:
    folder = resources.files("aworld_train.view") / "static"
    files = {}
    for entry in folder.iterdir():
        if entry.is_file():
            files[entry.name] = entry.read_bytes()
        elif entry.name == "vendor":
            files |= {f"vendor/{each.name}": each.read_bytes() for each in entry.iterdir() if each.is_file()}
    return files


def _file(name: str, data: bytes) -> web.Response:
    media_type = "text/javascript" if name.endswith(".js") else mimetypes.guess_type(name)[0] or "text/plain"
    return web.Response(body=data, content_type=media_type, charset="utf-8")


async def _listen(runner: web.AppRunner, port: int | None) -> int:
    try:
        await web.TCPSite(runner, HOST, PREFERRED_PORT if port is None else port).start()
    except OSError as error:
        if port is not None:
            raise UsageError(
                f"Port {port} cannot be used ({error.strerror}). Name another with --port."
            ) from error
        await web.TCPSite(runner, HOST, 0).start()
    return int(runner.addresses[0][1])


def _host_name(host: str) -> str | None:
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None


async def _add_headers(_: web.Request, response: web.StreamResponse) -> None:
    for name, value in _HEADERS.items():
        response.headers.setdefault(name, value)
