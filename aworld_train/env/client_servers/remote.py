"""A tool server at a URL as one on standard input and output: passes the messages of both sides on.

    python remote.py http|sse

``MCP_URL`` is its address, and each variable ``MCP_HEADER_NAME`` a header. A request that fails ends this process, so
that the caller sees a failure: the SDK's client would leave it waiting.
"""

import os
import sys
from typing import Any

import anyio
import httpx
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamablehttp_client
from mcp.server.stdio import stdio_server

_HEADER = "MCP_HEADER_"
_READ_SECONDS = 24 * 3600.0  # the caller has a limit of its own


class Client(httpx.AsyncClient):
    """A client whose failed requests end this process."""

    async def send(self, request: httpx.Request, **options: Any) -> httpx.Response:
        try:
            response = await super().send(request, **options)
        except httpx.TransportError as error:
            _end(f"{request.url.host} cannot be reached: {type(error).__name__}: {error}")
        if response.status_code >= 300 and (request.method == "POST" or sys.argv[1] == "sse"):
            _end(f"{request.url.host} answered HTTP {response.status_code} {response.reason_phrase}")
        return response


async def main() -> None:
    url = os.environ["MCP_URL"]
    headers = {
        name.removeprefix(_HEADER): value for name, value in os.environ.items() if name.startswith(_HEADER)
    }
    transport: Any = sse_client if sys.argv[1] == "sse" else streamablehttp_client
    connection = transport(url, headers, sse_read_timeout=_READ_SECONDS, httpx_client_factory=_client)
    async with (
        stdio_server() as (requests, answers),
        answers,  # closed first: the server's end waits for it
        connection as (incoming, outgoing, *_),
        anyio.create_task_group() as group,
    ):
        group.start_soon(_pass_on, incoming, answers, group)
        await _pass_on(requests, outgoing, group)


async def _pass_on(source: Any, target: Any, group: Any) -> None:
    async for message in source:
        if isinstance(message, Exception):
            sys.stderr.write(f"A message cannot be read: {message}\n")
        else:
            await target.send(message)
    group.cancel_scope.cancel()


def _client(headers: Any = None, timeout: Any = None, auth: Any = None) -> httpx.AsyncClient:
    return Client(headers=headers, timeout=timeout, auth=auth)


def _end(reason: str) -> Any:
    sys.stderr.write(f"{reason}\n")
    sys.stderr.flush()
    os._exit(1)


if __name__ == "__main__":
    anyio.run(main)
