"""MCP servers as processes, for tests of what stands between an agent and its tools."""

import os
import signal
import socket
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
from mcp import ClientSession
from mcp.client.streamable_http import streamablehttp_client

from aworld_train.adapter.episodes.agent import tool_server
from aworld_train.adapter.episodes.settings import EpisodeSettings
from aworld_train.rollout.tools import ToolServer
from tests import warm

TOKEN = "the-real-token"
WITHIN = 180.0
SOON = 120.0
"""Seconds: more than what ends at once takes on a busy machine, and less than what it does not wait for."""
JSON_CALCULATOR = [str(Path(__file__).parent / "calculator_over_http.py")]
"""Answers with JSON."""
STREAMING_ODD = [
    "-c",
    """
import asyncio, os
from mcp import types
from mcp.server.fastmcp import Context, FastMCP

server = FastMCP("odd", host="127.0.0.1", port=int(os.environ["PORT"]), log_level="ERROR")
cancelled, counted = [], {}

@server.tool()
async def count(context: Context, what: str = "") -> str:
    key = (id(context.session), what)
    counted[key] = counted.get(key, 0) + 1
    return str(counted[key])

@server.tool()
async def echo(value: object) -> str:
    return repr(value)

@server.tool()
def fails(how: str) -> str:
    raise ValueError(how)

@server.tool()
def structured(x: int) -> dict[str, int | None]:
    return {"x": x, "nothing": None}

@server.tool()
def many_kinds() -> list[types.ContentBlock]:
    resource = types.TextResourceContents(uri="odd://embedded", mimeType="text/plain", text="embedded")
    return [
        types.TextContent(type="text", text="\\u00e9\\u2028\\u6f22"),
        types.ImageContent(type="image", data="AAAA", mimeType="image/png"),
        types.EmbeddedResource(type="resource", resource=resource),
    ]

@server.tool()
async def wait(seconds: float, context: Context) -> str:
    try:
        for step in range(5):
            await context.report_progress(step, 5)
            await asyncio.sleep(seconds / 5)
    except asyncio.CancelledError:
        cancelled.append(seconds)
        raise
    return "waited"

@server.tool()
def were_cancelled() -> list[float]:
    return cancelled

@server.tool()
def headers(context: Context) -> dict[str, str]:
    return dict(context.request_context.request.headers)

@server.tool()
def crash() -> str:
    os._exit(3)

@server.custom_route("/health", methods=["GET"])
async def health(request):
    from starlette.responses import Response
    return Response()

server.run("streamable-http")
""",
]
"""Answers with event streams."""


class ServerProcess:
    """A server that can be killed, frozen and started again on the same port, or another one.

    Args:
        arguments: The interpreter's.
    """

    def __init__(self, arguments: list[str]):
        self._arguments = arguments
        self.port = 0
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    @property
    def health(self) -> str:
        return f"http://127.0.0.1:{self.port}/health"

    def start(self, port: int = 0) -> None:
        self.port = port or self.port or _free_port()
        environment = {**os.environ, "MCP_SERVER_TOKEN": TOKEN, "PORT": str(self.port)}
        self.process = warm.popen(*self._arguments, env=environment)
        deadline = time.monotonic() + WITHIN
        while time.monotonic() < deadline:
            try:
                if httpx.get(self.health, timeout=5).status_code == 200:
                    return
            except httpx.HTTPError:
                time.sleep(0.1)
        raise TimeoutError(f"{self._arguments} did not start")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def freeze(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def tools(self, call: float = WITHIN, connect: float = WITHIN, **headers: str) -> ToolServer:
        """It as an episode knows it."""
        return ToolServer(self.url, {"Authorization": f"Bearer {TOKEN}", **headers}, call, connect)


@asynccontextmanager
async def agent(url: str, **options: Any) -> AsyncIterator[ClientSession]:
    """A session by the official SDK, as an agent opens it that was told nothing but ``url``."""
    async with (
        streamablehttp_client(url) as (read, write, _),
        ClientSession(read, write, **options) as session,
    ):
        await session.initialize()
        yield session


def _free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def server_of_settings(
    servers: Sequence[str] = (), *, call: float = 30.0, connect: float = 30.0
) -> ToolServer:
    """The tool server of an episode whose recipe has these limits, in seconds, and selects nothing."""
    tools = {"include": [], "exclude": [], "short_descriptions": False}
    settings = SimpleNamespace(
        agent={"tool_timeout": call, "tools": tools},
        env={"servers": list(servers), "queue_timeout": connect},
    )
    return tool_server(cast(EpisodeSettings, settings))
