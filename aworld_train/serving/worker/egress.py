"""A worker's end of the way out: a proxy's port on its loopback, which leads to the egress container's socket.

A worker has no network but that loopback. Who connects there is asked for a name and password by the proxy itself, so a
program without them gets nothing, whatever it connects to.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from urllib.parse import quote

from aworld_train.serving.egress.forwarding import Forwarder
from aworld_train.serving.egress.settings import PORT, user_name

VARIABLE = "AWORLD_EGRESS_PASSWORDS"
"""Where a worker finds, as JSON, what each server with a way out shows to the proxy."""
_MAX_CONNECTIONS = 512
_BACKLOG = 1024
_DIRECT = "127.0.0.1,localhost"


@dataclass(frozen=True)
class ProxyPort:
    """The port on loopback.

    Attributes:
        port: Its number.
    """

    port: int
    forwarder: Forwarder = field(repr=False)

    async def end_connections(self) -> None:
        """End what a session has left open, before the next one begins: a port takes only so many at a time."""
        await self.forwarder.close()


@contextlib.asynccontextmanager
async def proxy_port(socket: str, port: int = PORT) -> AsyncIterator[ProxyPort]:
    """Listens on loopback and leads to ``socket`` for as long as the block lasts; port 0 takes any that is free.

    Each connection is led there anew, so an egress container may come later, and be started again.

    Raises:
        OSError: The port is taken.
    """
    forwarder = Forwarder(lambda: asyncio.open_unix_connection(socket), _MAX_CONNECTIONS)
    server = await asyncio.start_server(forwarder.serve, "127.0.0.1", port, backlog=_BACKLOG)
    try:
        yield ProxyPort(server.sockets[0].getsockname()[1], forwarder)
    finally:
        server.close()
        await forwarder.close()


def proxy_variables(server: str, password: str, port: int = PORT) -> dict[str, str]:
    """The variables by which a server and its programs find their way out; one without a way out gets none of them."""
    url = f"http://{quote(user_name(server))}:{quote(password, safe='')}@127.0.0.1:{port}"
    variables = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), url) | {"NO_PROXY": _DIRECT}
    return variables | {name.lower(): value for name, value in variables.items()}
