"""The program by which an environment reaches a tool server at a URL."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.types import TextContent

from aworld_train.env.client_servers import remote
from tests.tool_servers import JSON_CALCULATOR, TOKEN, ServerProcess

COMMAND = [sys.executable, str(Path(remote.__file__)), "http"]
PARAMETERS = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "t", "version": "1"},
}
HELLO = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": PARAMETERS}).encode() + b"\n"


@pytest.fixture(scope="module")
def calculator() -> Iterator[ServerProcess]:
    server = ServerProcess(JSON_CALCULATOR)
    yield server
    server.kill()


def variables(url: str, token: str) -> dict[str, str]:
    return {**os.environ, "MCP_URL": url, "MCP_HEADER_Authorization": f"Bearer {token}"}


async def test_tools_behind_a_url_are_called_with_its_headers(
    calculator: ServerProcess, tmp_path: Path
) -> None:
    program, *arguments = COMMAND
    server = StdioServerParameters(command=program, args=arguments, env=variables(calculator.url, TOKEN))
    errors = tmp_path / "errors"
    async with stdio_client(server, errors.open("w")) as streams, ClientSession(*streams) as session:
        await session.initialize()
        result = await session.call_tool("calculator", {"expression": "6 * 7"})
    assert isinstance(result.content[0], TextContent) and "42" in result.content[0].text


def test_a_refusal_ends_it_with_the_reason_and_without_the_key(calculator: ServerProcess) -> None:
    for url, reason in ((calculator.url, "HTTP 401"), ("http://127.0.0.1:9/mcp", "cannot be reached")):
        with started(url) as process:
            assert process.stdin is not None and process.stderr is not None
            process.stdin.write(HELLO)
            process.stdin.flush()
            assert process.wait(120) == 1
            errors = process.stderr.read().decode()
        assert reason in errors and "another-key" not in errors


def test_it_ends_with_its_caller(calculator: ServerProcess) -> None:
    with started(calculator.url) as process:
        process.communicate(timeout=120)
        assert process.returncode == 0


def started(url: str) -> "subprocess.Popen[bytes]":
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(COMMAND, env=variables(url, "another-key"), **pipes)
