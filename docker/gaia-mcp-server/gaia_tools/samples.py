"""The environment's own check of a tool: its call is marked, reads a file of ``samples``, and asks only ``samples/site``.

A check has to go through a tool's main path, and may neither depend on the internet nor cost money. So a marked call
reads its file from ``samples``, and each HTTP request of it, whichever host it is for, goes over a real connection to a
server on this process's loopback that answers with a file. The mark gives a client nothing but these files.
"""

import functools
from pathlib import Path

from aiohttp import web
from mcp.server.lowlevel.server import request_ctx
from yarl import URL

FOLDER = Path(__file__).resolve().parent.parent / "samples"
MARK = "aworld-train/probe"
"""Key in the ``_meta`` of a call, set by `aworld_train.env.health`."""
HOST = "samples.invalid"
"""The site's name for the browser, which asks by itself and not within a call; RFC 2606 keeps it out of the DNS."""
_SITE = FOLDER / "site"


def is_probe() -> bool:
    """Whether the call that is being answered is a check of the environment."""
    context = request_ctx.get(None)
    meta = context.meta if context is not None else None
    return bool(meta is not None and (meta.model_extra or {}).get(MARK))


async def redirected(url: URL) -> URL:
    """The address on the loopback that stands for ``url`` in a check."""
    return url.with_scheme("http").with_host("127.0.0.1").with_port(await port())


async def port() -> int:
    """The port of the site, which is served from its first use until this process ends."""
    runner = _runner()
    if not runner.addresses:
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
    return int(runner.addresses[0][1])


@functools.cache
def _runner() -> web.AppRunner:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", _answer)
    return web.AppRunner(app, access_log=None)


async def _answer(request: web.Request) -> web.StreamResponse:
    """The file whose path ends the requested one: services differ in what they have before it."""
    parts = [part for part in request.path.split("/") if part not in ("", ".", "..")]
    for first in range(len(parts)):
        file = _SITE.joinpath(*parts[first:])
        if file.is_file():
            return web.FileResponse(file)
    return web.Response(status=404, text="The samples have no such page.")
