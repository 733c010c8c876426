"""``python -m aworld_train.serving.env_gateway``: settings as one JSON object in the variable ``AWORLD_GATEWAY``.

``name``, ``host``, ``port``, ``sockets`` (of the workers), ``scoring`` (how many of them, the last, are for scoring),
``egress`` (socket with the egress container's counts, or null), ``limits`` (``app.GatewayLimits``) and ``revoked``
(file of revoked tokens; default: one beside each socket). Secrets are in ``AWORLD_SECRET`` and
``AWORLD_DESKTOP_PASSWORD``, without which there are no desktop pages.
"""

import asyncio
import json
import os
import resource
import signal
import sys
from pathlib import Path

from aiohttp import web

from aworld_train.serving.env_gateway.app import Gateway, GatewayLimits
from aworld_train.serving.env_gateway.connections import Connections, listening
from aworld_train.serving.env_gateway.desktop import PREFIX, DesktopPages


def main() -> None:
    settings = json.loads(os.environ["AWORLD_GATEWAY"])
    secret = os.environ.get("AWORLD_SECRET", "")
    if len(secret) < 32:
        sys.exit("AWORLD_SECRET is not set: there is no gateway without tokens.")
    _allow_many_files()
    files = [settings["revoked"]] if "revoked" in settings else map(_beside, settings["sockets"])
    gateway = Gateway(
        settings["name"],
        secret,
        settings["sockets"],
        GatewayLimits(**settings["limits"]),
        revoked=list(map(Path, files)),
        scoring=settings["scoring"],
        egress=settings["egress"],
    )
    app = gateway.application()
    if password := os.environ.get("AWORLD_DESKTOP_PASSWORD"):
        pages = DesktopPages(settings["name"], secret, password, gateway.pool.links)
        app.add_subapp(PREFIX, pages.application())
    asyncio.run(_serve(app, gateway.admission.connections, settings["host"], settings["port"]))


async def _serve(app: web.Application, connections: Connections, host: str, port: int) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    async with listening(app, connections, host, port):
        await stopped.wait()


def _allow_many_files() -> None:
    """Raise the limit of open files to its maximum: each session takes two, and the default is usually 1024."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _beside(socket: str) -> Path:
    return Path(socket).with_name("revoked.json")


if __name__ == "__main__":
    main()
