"""``python -m aworld_train.serving.worker``: settings as one JSON object in the variable ``AWORLD_WORKER``.

``socket`` (where to listen), ``manifest`` (file), ``python``, ``here`` and ``workspace`` (see the manifest),
``servers`` (names of those that are on), ``folders`` (what is emptied between sessions; null: what is
mounted in the container's memory), ``desktop`` (whether there is one).
"""

import asyncio
import ctypes
import json
import os
import signal
from pathlib import Path
from typing import Any

from aiohttp import web

from aworld_train.serving.manifest import Manifest, from_json
from aworld_train.serving.worker import desktop
from aworld_train.serving.worker.app import Worker
from aworld_train.serving.worker.launcher import Places, Spawner, give_up
from aworld_train.serving.worker.relay import Relay
from aworld_train.serving.worker.wipe import Ground, bury, container_folders

_PR_SET_DUMPABLE = 4  # from linux/prctl.h
_PR_SET_CHILD_SUBREAPER = 36
_BACKLOG = 4096  # connections at the same moment: a socket of this kind refuses the one too many


def main() -> None:
    """Serve until SIGTERM or SIGINT."""
    libc = ctypes.CDLL(None)
    libc.prctl(
        _PR_SET_DUMPABLE, 0, 0, 0, 0
    )  # tools of the same user read neither its memory nor its variables
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # what servers leave behind becomes its child
    settings = json.loads(os.environ["AWORLD_WORKER"])
    stored = json.loads(Path(settings["manifest"]).read_text(encoding="utf-8"))
    Path(settings["socket"]).unlink(missing_ok=True)
    asyncio.run(_serve(settings, from_json(stored)))


async def _serve(settings: dict[str, Any], manifest: Manifest) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)

    places = Places(settings["python"], Path(settings["here"]), Path(settings["workspace"]))
    has_desktop = settings.get("desktop", False)
    variables = {**os.environ, **(desktop.VARIABLES if has_desktop else {})}
    spawner = Spawner(manifest, places, variables, settings["servers"])
    loop.add_signal_handler(signal.SIGCHLD, lambda: give_up() if spawner.pid in bury() else None)
    relay = Relay(manifest, _off(manifest, settings["servers"]), spawner.spawn)
    ground = _ground(settings["folders"], spawner.pid) if manifest.sessions_per_worker == 1 else None
    drawn_on = desktop.Desktop(spawner.spawn) if has_desktop else None
    worker = Worker(relay, spawner, ground, settings["socket"], drawn_on)
    relay.report = worker.report
    app = worker.application()
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=1)
    await runner.setup()
    await web.UnixSite(runner, settings["socket"], backlog=_BACKLOG).start()
    await stopped.wait()
    relay.stop_servers()
    spawner.close()
    await runner.cleanup()


def _off(manifest: Manifest, chosen: list[str]) -> dict[str, str]:
    """The servers that are not run, and why."""
    missing = manifest.missing_keys(os.environ)
    return {
        name: f"{', '.join(missing[name])} not set" if name in missing else "left out when it was started"
        for name in manifest.servers
        if name not in chosen
    }


def _ground(folders: list[str] | None, spawner: int) -> Ground:
    spared = frozenset({os.getpid(), spawner})
    if folders is None:
        return Ground(container_folders(), spared, whole_machine=os.getpid() == 1)
    return Ground(tuple(map(Path, folders)), spared, whole_machine=False)


if __name__ == "__main__":
    main()
