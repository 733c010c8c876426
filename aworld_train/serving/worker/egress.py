"""A worker's only network: a port on its loopback, which is forwarded to the egress container's socket.

The proxy requires a name and a password, so a program that connects without them reaches nothing.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from urllib.parse import quote

from aworld_train.serving.egress.forwarding import Forwarder
from aworld_train.serving.egress.settings import PORT, user_name

VARIABLE = "AWORLD_EGRESS_PASSWORDS"
_MAX_CONNECTIONS = 512
_BACKLOG = 1024
_DIRECT = "127.0.0.1,localhost"


@dataclass(frozen=True)
class ProxyPort:
    port: int
    forwarder: Forwarder = field(repr=False)

    async def end_connections(self) -> None:
        """End the connections that a session left open, so that the next session has all of the limited number."""
        await self.forwarder.close()


@contextlib.asynccontextmanager
async def proxy_port(socket: str, port: int = PORT) -> AsyncIterator[ProxyPort]:
    """Listens on loopback and forwards to ``socket`` until the block ends; port 0 takes any that is free.

    Each connection opens the socket itself, so the egress container may start later, or be restarted.
    """
    forwarder = Forwarder(lambda: asyncio.open_unix_connection(socket), _MAX_CONNECTIONS)
    server = await asyncio.start_server(forwarder.serve, "127.0.0.1", port, backlog=_BACKLOG)
    try:
        yield ProxyPort(server.sockets[0].getsockname()[1], forwarder)
    finally:
        server.close()
        await forwarder.close()


def proxy_variables(server: str, password: str, port: int = PORT) -> dict[str, str]:
    """The variables by which a server and its programs find the proxy; a server without egress gets none of them."""
    url = f"http://{quote(user_name(server))}:{quote(password, safe='')}@127.0.0.1:{port}"
    variables = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), url) | {"NO_PROXY": _DIRECT}
    return variables | {name.lower(): value for name, value in variables.items()}
