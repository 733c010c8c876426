"""A web server of a test in a thread with an event loop of its own, so that any loop and any process may ask it."""

import asyncio
import threading
from abc import abstractmethod
from types import TracebackType
from typing import Any, Self

from aiohttp import web


class ServerThread:
    """``with SomeServer() as server: ...``; a subclass says what is served."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    @abstractmethod
    async def _start(self) -> web.AppRunner:
        """Start serving."""

    def __enter__(self) -> Self:
        self._thread.start()
        self._runner = self._run(self._start())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run(self._runner.cleanup())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(120)
        self._loop.close()

    def _run(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(120)
