"""What the tool gateway and the cassette add to a tool call, in time and in this process's CPU."""

import json
import statistics
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from aworld_train.rollout.cassette import Cassette, Mode
from aworld_train.rollout.tool_gateway import ToolGateway
from tests.tool_servers import JSON_CALCULATOR, STREAMING_ODD, ServerProcess

pytestmark = pytest.mark.bench

CALLS = 400
HEADERS = {"Accept": "application/json, text/event-stream", "Authorization": "Bearer the-real-token"}
HELLO = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "bench", "version": "1"},
}


@pytest.fixture(scope="module", params=[JSON_CALCULATOR, STREAMING_ODD], ids=["JSON", "event streams"])
def server(request: pytest.FixtureRequest) -> Iterator[ServerProcess]:
    one = ServerProcess(request.param)
    yield one
    one.kill()


@pytest.fixture
async def gateway() -> AsyncIterator[ToolGateway]:
    one = ToolGateway()
    yield one
    await one.stop()


class Session:
    """The least that a client of one session can be, so that what is measured is not the client."""

    def __init__(self, http: aiohttp.ClientSession, url: str, tool: str, headers: dict[str, str]):
        self._http, self._url, self._tool, self._headers = http, url, tool, dict(headers)
        self._number = 0

    async def ask(self, method: str, params: dict[str, Any]) -> bytes:
        self._number += 1
        message = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}
        async with self._http.post(self._url, json=message, headers=self._headers) as answer:
            if "Mcp-Session-Id" in answer.headers:
                self._headers["Mcp-Session-Id"] = answer.headers["Mcp-Session-Id"]
            return await answer.read()

    async def call(self, number: int) -> bytes:
        arguments = {"expression": f"{number}+1", "value": number}
        return await self.ask("tools/call", {"name": self._tool, "arguments": arguments})


async def test_what_the_gateway_adds_to_a_call(
    server: ServerProcess, gateway: ToolGateway, tmp_path: Path
) -> None:
    tool = "calculator" if "calculator_over_http" in str(server._command) else "echo"
    cassette = Cassette(tmp_path / "c", Mode.record)
    cassette.keep_tools("local", [])
    passing = await gateway.open_session(server.tools())
    recorded = await gateway.open_session(server.tools(), cassette)
    replayed = await gateway.open_session(server.tools(), Cassette(tmp_path / "c", Mode.replay))
    own = {"Accept": HEADERS["Accept"]}
    async with aiohttp.ClientSession() as http:
        sessions = {
            "direct": Session(http, server.url, tool, HEADERS),
            "through the gateway": Session(http, passing.url, tool, own),
            "recorded": Session(http, recorded.url, tool, own),
            "replayed": Session(http, replayed.url, tool, own),
        }
        for session in sessions.values():
            await session.ask("initialize", HELLO)
        seconds: dict[str, list[float]] = {name: [] for name in sessions}
        cpu: dict[str, list[float]] = {name: [] for name in sessions}
        for number in range(CALLS):  # in turn, so that what else the machine does falls on all of them
            for name, session in sessions.items():
                began, used = time.perf_counter(), time.process_time()
                said = await session.call(number)
                seconds[name].append(time.perf_counter() - began)
                cpu[name].append(time.process_time() - used)
                assert b'"isError":false' in said.replace(b" ", b""), json.loads(said)
    print()
    for name in sessions:
        ms, used_ms = (1e3 * statistics.median(values[name]) for values in (seconds, cpu))
        print(f"{name}: {ms:.2f} ms, {used_ms:.2f} ms CPU here, the client's included")
