"""An HTTP proxy of a test, and the environment variables that name proxies."""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest
from aiohttp import web

from aworld_train.network import proxy_for
from tests.server_thread import ServerThread

PROXY_USER = "user:sesame"


@contextmanager
def proxy_variables(**proxies: str) -> Iterator[None]:
    """Set the variables ``<name>_proxy``, and no others of the kind, while in this context."""
    with pytest.MonkeyPatch.context() as environment:
        for variable in [name for name in os.environ if name.lower().endswith("_proxy")]:
            environment.delenv(variable)
        for name, value in proxies.items():
            environment.setenv(f"{name}_proxy", value)
        proxy_for.cache_clear()
        try:
            yield
        finally:
            proxy_for.cache_clear()


class Proxy(ServerThread):
    """A proxy that answers every request itself.

    Args:
        status: Of its answers.
        body: Of its answers, as JSON.

    Attributes:
        requests: The method and the host of each request.
        credentials: The ``Proxy-Authorization`` of each request.
    """

    def __init__(self, status: int = 200, body: object = None):
        super().__init__()
        self._status, self._body = status, body
        self._port = 0
        self.requests: list[tuple[str, str]] = []
        self.credentials: list[str | None] = []

    def variables(self, scheme: str) -> AbstractContextManager[None]:
        """The environment in which it is the proxy for this scheme, or for ``all``."""
        return proxy_variables(**{scheme: f"http://{PROXY_USER}@127.0.0.1:{self._port}"})

    async def _start(self) -> web.AppRunner:
        async def answer(request: web.BaseRequest) -> web.Response:
            self.requests.append((request.method, request.headers["Host"]))
            self.credentials.append(request.headers.get("Proxy-Authorization"))
            return web.json_response(self._body, status=self._status)

        runner = web.ServerRunner(web.Server(answer), shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self._port = runner.addresses[0][1]
        return runner  # type: ignore[return-value]
