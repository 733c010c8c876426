"""``python -m aworld_train.serving.worker``: settings as one JSON object in the variable ``AWORLD_WORKER``.

``socket`` (where to listen), ``manifest`` (file), ``python``, ``here`` and ``workspace`` (see the manifest),
``servers`` (names of those that are on), ``folders`` (what is emptied between sessions; null: what is
mounted in the container's memory), ``user`` (whom tool servers run as, see ``spawner.ToolUser``; null: the user of this
process), ``own_user`` (whom this process becomes once the spawner runs; null: nobody else), ``egress`` (the socket that
leads out; null: there is no way out), ``desktop`` (whether there is one). The secret of the channel to the gateway is
in ``AWORLD_CHANNEL``, what servers show to the proxy in ``AWORLD_EGRESS_PASSWORDS``.
"""

import asyncio
import contextlib
import ctypes
import json
import os
import signal
from pathlib import Path
from typing import Any

from aiohttp import web

from aworld_train.serving.channel import VARIABLE, Channel
from aworld_train.serving.manifest import Manifest, from_json
from aworld_train.serving.worker import desktop
from aworld_train.serving.worker.app import Worker
from aworld_train.serving.worker.cleaning import Cleaner, ContainerCleaner, ProcessCleaner
from aworld_train.serving.worker.egress import VARIABLE as EGRESS_VARIABLE
from aworld_train.serving.worker.egress import ProxyPort, proxy_port, proxy_variables
from aworld_train.serving.worker.endpoint import WorkerSocket
from aworld_train.serving.worker.launcher import CommandPaths, Spawner, give_up
from aworld_train.serving.worker.relay import Relay
from aworld_train.serving.worker.wipe import SharedResources, bury

_PR_SET_DUMPABLE = 4  # from linux/prctl.h
_PR_SET_CHILD_SUBREAPER = 36
_BACKLOG = 4096  # connections at the same moment: a socket of this kind refuses the one too many


def main() -> None:
    """Serve until SIGTERM or SIGINT."""
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # what servers leave behind becomes its child
    settings = json.loads(os.environ["AWORLD_WORKER"])
    manifest = from_json(json.loads(Path(settings["manifest"]).read_text(encoding="utf-8")))
    places = CommandPaths(settings["python"], Path(settings["here"]), Path(settings["workspace"]))
    variables = {**os.environ, **(desktop.VARIABLES if settings["desktop"] else {})}
    passwords = json.loads(os.environ.get(EGRESS_VARIABLE, "{}"))
    proxies = {server: proxy_variables(server, password) for server, password in passwords.items()}
    spawner = Spawner(manifest, places, variables, settings["servers"], proxies, settings["user"])
    if settings["own_user"] is not None:
        _become(settings["own_user"])
    libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)  # tools read neither its memory nor its variables
    asyncio.run(_serve(settings, manifest, spawner))


def _become(user: int) -> None:
    """Be that user from now on, without the capabilities that the spawner has."""
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)


async def _serve(settings: dict[str, Any], manifest: Manifest, spawner: Spawner) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    loop.add_signal_handler(signal.SIGCHLD, lambda: give_up() if spawner.pid in bury() else None)
    relay = Relay(manifest, _off(manifest, settings["servers"]), spawner)
    endpoint = WorkerSocket(settings["socket"])
    way_out = contextlib.AsyncExitStack()
    proxy = await way_out.enter_async_context(proxy_port(settings["egress"])) if settings["egress"] else None
    cleaner = _cleaner(settings, spawner, proxy) if manifest.sessions_per_worker == 1 else None
    drawn_on = desktop.Desktop(spawner) if settings["desktop"] else None
    worker = Worker(relay, spawner, cleaner, Channel(os.environ[VARIABLE]), endpoint, drawn_on)
    relay.report = worker.report
    runner = web.AppRunner(
        worker.application(), handler_cancellation=True, access_log=None, shutdown_timeout=1
    )
    await runner.setup()
    endpoint.clear()
    await web.UnixSite(runner, settings["socket"], backlog=_BACKLOG).start()
    endpoint.remember()
    watching = asyncio.create_task(worker.watch())
    await stopped.wait()
    watching.cancel()
    relay.stop_servers()
    spawner.close()
    await runner.cleanup()
    await way_out.aclose()


def _off(manifest: Manifest, chosen: list[str]) -> dict[str, str]:
    """The servers that are not run, and why."""
    missing = manifest.missing_keys(os.environ)
    return {
        name: f"{', '.join(missing[name])} not set" if name in missing else "left out when it was started"
        for name in manifest.servers
        if name not in chosen
    }


def _cleaner(settings: dict[str, Any], spawner: Spawner, proxy: ProxyPort | None) -> Cleaner:
    if settings["folders"] is None:
        return ContainerCleaner(spawner, proxy)
    ground = SharedResources(tuple(map(Path, settings["folders"])), frozenset({os.getpid(), spawner.pid}))
    return ProcessCleaner(ground, spawner, Path(settings["socket"]))


if __name__ == "__main__":
    main()
