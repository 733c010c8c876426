"""The calculator of the example environment behind the MCP SDK's own HTTP server, for tests of clients.

One process, which a test can kill, freeze, and start again on its port: ``MCP_SERVER_TOKEN`` and ``PORT`` are what it
listens for. Whatever clients do with an environment's gateway, they have to do with any other MCP server too.
"""

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import uvicorn
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

sys.path.insert(0, str(Path(__file__).parents[1] / "docker" / "calculator-mcp-server"))
import server as calculator  # type: ignore[import-not-found]

TOKEN = os.environ["MCP_SERVER_TOKEN"]
sessions = StreamableHTTPSessionManager(calculator.server, json_response=True)


class Mcp:
    """``/mcp`` for those with the token."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if Request(scope).headers.get("Authorization") == f"Bearer {TOKEN}":
            await sessions.handle_request(scope, receive, send)
        else:
            await JSONResponse({"error": "wrong token"}, 401)(scope, receive, send)


@asynccontextmanager
async def lifespan(_: Starlette) -> AsyncIterator[None]:
    async with sessions.run():
        yield


async def health(_: Request) -> Response:
    return Response()


if __name__ == "__main__":
    app = Starlette(routes=[Route("/health", health), Route("/mcp", Mcp())], lifespan=lifespan)
    uvicorn.run(app, port=int(os.environ["PORT"]), log_level="error", timeout_graceful_shutdown=1)
