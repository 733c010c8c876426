"""Cleaning a worker after a session: everything that it left is removed, and its absence is verified.

In a container the spawner does it, because tool servers run as another user than the worker.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from aworld_train.serving.worker.egress import ProxyPort
from aworld_train.serving.worker.launcher import Spawner
from aworld_train.serving.worker.wipe import NotClean, SharedResources, end_processes, wipe


class ContainerCleaner:
    """``clean`` raises NotClean if the worker must not be used any more; so does that of ``ProcessCleaner``."""

    def __init__(self, spawner: Spawner, proxy: ProxyPort | None):
        self._spawner, self._proxy = spawner, proxy

    async def clean(self) -> None:
        await self._spawner.wipe()
        if self._proxy is not None:
            await self._proxy.end_connections()


class ProcessCleaner:
    def __init__(self, resources: SharedResources, spawner: Spawner, socket: Path):
        self._resources, self._spawner, self._socket = resources, spawner, socket
        # The thread starts now: later, a session may have used up all processes, which include threads.
        self._thread = ThreadPoolExecutor(1)
        self._thread.submit(int).result()

    async def clean(self) -> None:
        await self._run(end_processes)
        # No tool can block the spawner now. What it still starts for the session's last orders is ended by the wipe.
        await self._spawner.wait_until_idle()
        await self._run(wipe)
        if any(entry != self._socket for entry in self._socket.parent.iterdir()):
            raise NotClean("there is another file in the folder of the socket")

    async def _run(self, work: Callable[[SharedResources], None]) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, work, self._resources)


Cleaner = ContainerCleaner | ProcessCleaner
