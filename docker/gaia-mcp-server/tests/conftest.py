"""Every test has a workspace and attachments of its own, and calls tools as an agent does: over MCP."""

import json
import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web as http
from aiohttp.test_utils import TestServer
from gaia_tools.results import MAX_FACT_CHARS, MAX_LIST_CHARS
from mcp.server.fastmcp import FastMCP
from mcp.shared.memory import create_connected_server_and_client_session
from mcp.types import CallToolResult, TextContent

from tests import recorded_calls

if recorded_calls.VARIABLE in os.environ:
    recorded_calls.record(Path(os.environ[recorded_calls.VARIABLE]))

# The fields that hold a tool's text.
_TEXTS = ("content", "text", "output", "stdout", "answer")
Handler = Callable[[http.Request], Awaitable[http.StreamResponse]]
Serve = Callable[..., Awaitable[str]]


@pytest.fixture(autouse=True)
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    monkeypatch.setenv("WORKSPACE", str(folder))
    monkeypatch.chdir(folder)
    monkeypatch.delenv("TOOLS_ALLOWED_HOSTS", raising=False)
    return folder


@pytest.fixture(autouse=True)
def attachments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "attachments"
    folder.mkdir()
    monkeypatch.setenv("ATTACHMENTS", str(folder))
    return folder


@pytest.fixture
async def serve(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Serve]:
    """Starts a site on this machine whose every address a handler answers, and gives its base URL."""
    servers = []

    async def start(handler: Handler, allowed: bool = True) -> str:
        app = http.Application()

        async def answer(request: http.Request) -> http.StreamResponse:
            return await handler(request)

        app.router.add_route("*", "/{path:.*}", answer)
        server = TestServer(app)
        await server.start_server()
        servers.append(server)
        if allowed:
            known = os.environ.get("TOOLS_ALLOWED_HOSTS", "")
            monkeypatch.setenv("TOOLS_ALLOWED_HOSTS", f"{known},127.0.0.1:{server.port}")
        return f"http://127.0.0.1:{server.port}"

    yield start
    for server in servers:
        await server.close()


async def call(server: FastMCP, tool: str, **arguments: Any) -> CallToolResult:
    """The result of a tool, through an MCP client."""
    async with create_connected_server_and_client_session(server._mcp_server) as session:
        return check_once(await session.call_tool(tool, arguments))


def check_once(result: CallToolResult) -> CallToolResult:
    """The result, in which nothing long is said twice."""
    structured = result.structuredContent or {}
    assert [one for one in strings(structured) if len(one) > MAX_FACT_CHARS] == []
    sizes = {name: len(json.dumps(value, ensure_ascii=False)) for name, value in structured.items()}
    assert [name for name, size in sizes.items() if size > MAX_LIST_CHARS] == []
    return result


def strings(value: Any) -> list[str]:
    """All strings in a value."""
    if isinstance(value, str):
        return [value]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [one for part in parts for one in strings(part)]


async def content(server: FastMCP, tool: str, **arguments: Any) -> dict[str, Any]:
    """What a result that is no error says to a program."""
    result = await call(server, tool, **arguments)
    assert not result.isError, text(result)
    return Facts(result)


class Facts(dict[str, Any]):
    """The structured content of a result, or all of it as JSON; a text that is too long for it is the result's."""

    def __init__(self, result: CallToolResult):
        self._text = text(result)
        super().__init__(
            json.loads(self._text) if result.structuredContent is None else result.structuredContent
        )

    def __missing__(self, name: str) -> str:
        if name not in _TEXTS:
            raise KeyError(name)
        return self._text


async def refusal(server: FastMCP, tool: str, **arguments: Any) -> str:
    """What an error result says."""
    result = await call(server, tool, **arguments)
    assert result.isError, text(result)
    return text(result)


def body(shown: str) -> str:
    """The part of a long text that is shown: without the heading before it and the note after it."""
    return shown.partition("\n\n")[2].partition("\n[... ")[0]


def text(result: CallToolResult) -> str:
    return "\n".join(part.text for part in result.content if isinstance(part, TextContent))


def needs(program: str) -> None:
    """Skip the test where a program is missing; fail where GAIA_TOOLS_TESTS_NEED_ALL is set."""
    if shutil.which(program) is None:
        if os.environ.get("GAIA_TOOLS_TESTS_NEED_ALL"):
            pytest.fail(f"{program} is not installed, and GAIA_TOOLS_TESTS_NEED_ALL is set")
        pytest.skip(f"{program} is not installed")
