"""``python -m aworld_train.serving.gateway``: settings as one JSON object in the variable ``AWORLD_GATEWAY``.

``name`` (of the environment), ``host``, ``port``, ``sockets`` (of the workers), ``scoring`` (how many of them, the
last, are for scoring), ``limits`` (see ``app.Limits``). What tokens are signed with is in ``AWORLD_SECRET``;
``AWORLD_DESKTOP_PASSWORD`` opens the desktop pages: there are none without it.
"""

import asyncio
import json
import os
import signal
import sys

from aiohttp import web

from aworld_train.serving.gateway.app import Gateway, Limits
from aworld_train.serving.gateway.desktop import PREFIX, DesktopPages

_BACKLOG = 4096  # clients that connect at the same moment


def main() -> None:
    """Serve until SIGTERM or SIGINT."""
    settings = json.loads(os.environ["AWORLD_GATEWAY"])
    secret = os.environ.get("AWORLD_SECRET", "")
    if len(secret) < 32:
        sys.exit("AWORLD_SECRET is not set: there is no gateway without tokens.")
    limits = Limits(**settings["limits"])
    gateway = Gateway(settings["name"], secret, settings["sockets"], limits, settings["scoring"])
    app = gateway.application()
    if password := os.environ.get("AWORLD_DESKTOP_PASSWORD"):
        pages = DesktopPages(settings["name"], secret, password, gateway.pool.links)
        app.add_subapp(PREFIX, pages.application())
    asyncio.run(_serve(app, settings["host"], settings["port"]))


async def _serve(app: web.Application, host: str, port: int) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, host, port, backlog=_BACKLOG).start()
    await stopped.wait()
    await runner.cleanup()


if __name__ == "__main__":
    main()
