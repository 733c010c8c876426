"""``python -m aworld_train.serving.worker``: settings as one JSON object in the variable ``AWORLD_WORKER``.

``socket``, ``manifest`` (file), ``python``, ``here`` and ``workspace`` (see the manifest), ``servers`` (that are on),
``folders`` (emptied between sessions; null: those mounted in memory), ``user`` (of tool servers, ``spawner.ToolUser``),
``own_user`` (of this process once the spawner runs), ``egress`` (the proxy's socket), ``desktop``; null: none or no
change. Secrets are in ``AWORLD_CHANNEL`` and ``AWORLD_EGRESS_PASSWORDS``.
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
from aworld_train.serving.worker.app import Worker, WorkerSocket
from aworld_train.serving.worker.cleaning import Cleaner, ContainerCleaner, ProcessCleaner
from aworld_train.serving.worker.egress import VARIABLE as EGRESS_VARIABLE
from aworld_train.serving.worker.egress import ProxyPort, proxy_port, proxy_variables
from aworld_train.serving.worker.launcher import CommandPaths, Spawner, end_worker
from aworld_train.serving.worker.relay import Relay
from aworld_train.serving.worker.wipe import SharedResources, reap_children

_PR_SET_DUMPABLE = 4  # from linux/prctl.h
_PR_SET_CHILD_SUBREAPER = 36
_BACKLOG = 4096  # simultaneous connections: a Unix socket refuses any more


def main() -> None:
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)  # orphaned processes of servers become its children
    settings = json.loads(os.environ["AWORLD_WORKER"])
    manifest = from_json(json.loads(Path(settings["manifest"]).read_text(encoding="utf-8")))
    paths = CommandPaths(settings["python"], Path(settings["here"]), Path(settings["workspace"]))
    variables = {**os.environ, **(desktop.VARIABLES if settings["desktop"] else {})}
    passwords = json.loads(os.environ.get(EGRESS_VARIABLE, "{}"))
    proxies = {server: proxy_variables(server, password) for server, password in passwords.items()}
    spawner = Spawner(manifest, paths, variables, settings["servers"], proxies, settings["user"])
    if settings["own_user"] is not None:
        _change_user(settings["own_user"])
    libc.prctl(_PR_SET_DUMPABLE, 0)  # so that tools can read neither its memory nor its variables
    asyncio.run(_serve(settings, manifest, paths, spawner))


def _change_user(user: int) -> None:
    """Change to that user, without the capabilities that the spawner has."""
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)


async def _serve(settings: dict[str, Any], manifest: Manifest, paths: CommandPaths, spawner: Spawner) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    loop.add_signal_handler(signal.SIGCHLD, lambda: end_worker() if spawner.pid in reap_children() else None)
    relay = Relay(manifest, _disabled(manifest, settings["servers"]), spawner, paths)
    endpoint = WorkerSocket(settings["socket"])
    exit_stack = contextlib.AsyncExitStack()
    proxy = (
        await exit_stack.enter_async_context(proxy_port(settings["egress"])) if settings["egress"] else None
    )
    cleaner = _cleaner(settings, spawner, proxy) if manifest.sessions_per_worker == 1 else None
    worker_desktop = desktop.Desktop(spawner) if settings["desktop"] else None
    worker = Worker(relay, spawner, cleaner, Channel(os.environ[VARIABLE]), endpoint, worker_desktop)
    relay.report = worker.report
    runner = web.AppRunner(
        worker.application(), handler_cancellation=True, access_log=None, shutdown_timeout=0.1
    )
    await runner.setup()
    endpoint.clear()
    await web.UnixSite(runner, settings["socket"], backlog=_BACKLOG).start()
    endpoint.remember()
    watching = asyncio.create_task(worker.watch())
    await stopped.wait()
    watching.cancel()
    relay.stop_servers()
    await runner.cleanup()
    loop.remove_signal_handler(signal.SIGCHLD)  # from here on the spawner is expected to end
    await spawner.close()
    await exit_stack.aclose()


def _disabled(manifest: Manifest, chosen: list[str]) -> dict[str, str]:
    missing = manifest.missing_keys(os.environ)
    return {
        name: f"{', '.join(missing[name])} not set" if name in missing else "left out when it was started"
        for name in manifest.servers
        if name not in chosen
    }


def _cleaner(settings: dict[str, Any], spawner: Spawner, proxy: ProxyPort | None) -> Cleaner:
    if settings["folders"] is None:
        return ContainerCleaner(spawner, proxy)
    resources = SharedResources(tuple(map(Path, settings["folders"])), frozenset({os.getpid(), spawner.pid}))
    return ProcessCleaner(resources, spawner, Path(settings["socket"]))


if __name__ == "__main__":
    main()
