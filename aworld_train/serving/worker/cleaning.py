"""What follows a session in a worker: everything that it left is removed, and seen to be gone.

In a container the spawner does it, because tool servers run as another user than the worker. Where they share a user
and a machine with others, the worker ends its own descendants and empties the folders that are its own.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

from aworld_train.serving.worker.egress import ProxyPort
from aworld_train.serving.worker.launcher import Spawner
from aworld_train.serving.worker.wipe import NotClean, SharedResources, end_processes, wipe


class Cleaner(Protocol):
    """Brings a worker back to where it was before a session."""

    async def clean(self) -> None:
        """Remove what the session left.

        Raises:
            NotClean: Something is left, so the worker must not be used any more.
        """
        ...


class ContainerCleaner:
    """Cleans a container of the worker's own.

    Args:
        spawner: Started what is to be ended.
        proxy: The way out, if there is one.
    """

    def __init__(self, spawner: Spawner, proxy: ProxyPort | None):
        self._spawner, self._proxy = spawner, proxy

    async def clean(self) -> None:
        """See `Cleaner.clean`."""
        await self._spawner.wipe()
        if self._proxy is not None:
            await self._proxy.end_connections()


class ProcessCleaner:
    """Cleans up after a worker that is one process of this machine among others.

    Args:
        ground: What a session can change.
        spawner: Starts its processes.
        socket: The worker's own: nothing else is left in its folder.
    """

    def __init__(self, ground: SharedResources, spawner: Spawner, socket: Path):
        self._ground, self._spawner, self._socket = ground, spawner, socket
        # Started now: a session may have used up all processes, threads included, when it is needed.
        self._thread = ThreadPoolExecutor(1)
        self._thread.submit(int).result()

    async def clean(self) -> None:
        """See `Cleaner.clean`."""
        await self._run(end_processes)
        # Now nothing is left that could hold the spawner up; what it was still to start for the session is ended next.
        await self._spawner.prove()
        await self._run(wipe)
        if any(entry != self._socket for entry in self._socket.parent.iterdir()):
            raise NotClean("there is something beside the socket")

    async def _run(self, work: Callable[[SharedResources], None]) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, work, self._ground)
