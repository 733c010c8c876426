"""Who waits for a worker hears of it, from a real environment: over the official SDK, and through our own client."""

import asyncio
import json
import logging
from collections.abc import Iterator
from contextlib import aclosing
from datetime import timedelta
from typing import Any

import httpx
import pytest
from mcp import ClientSession, McpError
from mcp.client.streamable_http import streamablehttp_client
from mcp.types import LoggingMessageNotificationParams

from aworld_train.env import EnvConnection, down, examine, status, up
from aworld_train.rollout import tools as tools_module
from aworld_train.rollout.episode_clock import EpisodeClock
from aworld_train.rollout.outcome import EnvironmentLost
from aworld_train.rollout.tool_gateway import ToolGateway
from aworld_train.rollout.tools import ToolServer, ToolSession
from tests.environments import HEADERS, HELLO, ODD, eventually, text_of

# The function that every supported release of the MCP SDK has is deprecated in the latest ones.
pytestmark = pytest.mark.filterwarnings("ignore:Use `streamable_http_client`:DeprecationWarning")

NAME = "queue"
LAST = "waiting for a free worker: 0 before you; workers: 1 busy"
SECONDS = timedelta(seconds=60)


@pytest.fixture(scope="module")
def full() -> Iterator[EnvConnection]:
    """One worker, for which a session waits for nine seconds at most."""
    yield up(ODD, name=NAME, backend="process", workers=1, limits={"queue_seconds": 9.0})
    down(NAME)


@pytest.fixture
def server(full: EnvConnection) -> ToolServer:
    return ToolServer(full.mcp_url, {"Authorization": f"Bearer {full.token}"}, connect_timeout=60)


class Agent:
    """An agent with the SDK's client, and what it was told while it waited."""

    def __init__(self, url: str, headers: dict[str, str]):
        self._url, self._headers = url, headers
        self.messages: list[str] = []

    async def echo(self, text: str) -> str:
        async with (
            # A read that is silent for five seconds fails.
            streamablehttp_client(self._url, headers=self._headers, timeout=5) as (read, write, _),
            ClientSession(read, write, SECONDS, logging_callback=self._hear) as opened,
        ):
            await opened.initialize()
            return text_of(await opened.call_tool("echo", {"text": text}))

    async def _hear(self, params: LoggingMessageNotificationParams) -> None:
        self.messages.append(str(params.data))


async def queued(count: int) -> None:
    def are_queued() -> bool:
        (now,) = status(NAME)
        return now.queued == count

    assert await asyncio.to_thread(eventually, are_queued, 20)


async def test_an_agent_with_the_sdk_hears_of_its_place_and_then_has_its_session(
    full: EnvConnection, server: ToolServer
) -> None:
    first, second = (Agent(full.mcp_url, dict(server.headers)) for _ in range(2))
    async with ToolSession(server) as holder:
        await holder.call("echo", {"text": "mine"})
        one = asyncio.create_task(first.echo("one"))
        await queued(1)
        other = asyncio.create_task(second.echo("other"))
        await queued(2)
        assert await asyncio.to_thread(eventually, lambda: len(first.messages) > 1 and second.messages, 20)
    assert await asyncio.gather(one, other) == ["one", "other"]
    assert set(first.messages) == {LAST}
    assert second.messages[0] == LAST.replace("0 before", "1 before")


async def test_a_request_with_a_progress_token_hears_of_progress(
    full: EnvConnection, server: ToolServer
) -> None:
    hello = {**HELLO, "params": {**HELLO["params"], "_meta": {"progressToken": "mine"}}}  # type: ignore[dict-item]
    async with ToolSession(server) as holder, httpx.AsyncClient(timeout=30) as client:
        await holder.call("echo", {"text": "mine"})
        headers = {**HEADERS, **server.headers}
        async with client.stream("POST", full.mcp_url, headers=headers, json=hello) as response:
            assert response.headers["Content-Type"] == "text/event-stream"
            messages: list[dict[str, Any]] = []
            async with asyncio.timeout(20), aclosing(response.aiter_lines()) as lines:
                async for line in lines:
                    if line.startswith("data: "):
                        messages.append(json.loads(line.removeprefix("data: ")))
                    if len(messages) == 2:
                        break
        assert [one["method"] for one in messages] == ["notifications/message", "notifications/progress"]
        assert messages[1]["params"]["progressToken"] == "mine" and messages[1]["params"]["message"] == LAST
    # The client went away while it waited, and its place in the queue with it.
    await queued(0)


async def test_a_wait_without_end_is_an_error_for_every_client(
    full: EnvConnection, server: ToolServer
) -> None:
    gateway = ToolGateway()
    episode = await gateway.open_session(server)
    async with ToolSession(server) as holder:
        await holder.call("echo", {"text": "mine"})
        agent = Agent(full.mcp_url, dict(server.headers))
        results = await asyncio.gather(
            agent.echo("never"), Agent(episode.url, {}).echo("never"), return_exceptions=True
        )
        for result in results:
            assert isinstance(result, ExceptionGroup | McpError)
            assert "no worker became free" in str(causes(result))
        assert agent.messages
        assert "no worker became free" in str(episode.lost)
        with pytest.raises(EnvironmentLost, match="no worker became free"):
            await ToolSession(ToolServer(server.url, server.headers, connect_timeout=10)).list_tools()
    await episode.close()
    await gateway.stop()


async def test_an_episode_s_time_does_not_pass_while_it_waits(
    full: EnvConnection, server: ToolServer
) -> None:
    seconds, gateway = 5.0, ToolGateway()

    async def by_our_client() -> str:
        async with EpisodeClock(seconds, 60), ToolSession(server) as tools:
            return (await tools.call("echo", {"text": "ours"})).text

    async def by_an_agent() -> str:
        async with EpisodeClock(seconds, 60):
            episode = await gateway.open_session(server)
            try:
                return await Agent(episode.url, {}).echo("an agent's")
            finally:
                await episode.close()

    async with ToolSession(server) as holder:
        await holder.call("echo", {"text": "mine"})
        episodes = [asyncio.create_task(play) for play in (by_our_client(), by_an_agent())]
        await queued(2)
        await asyncio.sleep(seconds + 1)
    assert await asyncio.gather(*episodes) == ["ours", "an agent's"]
    await gateway.stop()


async def test_our_own_client_logs_the_wait_and_a_test_of_tools_reports_it(
    full: EnvConnection,
    server: ToolServer,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tools_module, "_logged", float("-inf"))
    monkeypatch.setattr("aworld_train.env.health.REPORT_SECONDS", 0.5)
    lines: list[str] = []
    async with ToolSession(server) as holder, ToolSession(server) as waiting:
        await holder.call("echo", {"text": "mine"})
        with caplog.at_level(logging.WARNING):
            call = asyncio.create_task(waiting.call("echo", {"text": "theirs"}))
            assert await asyncio.to_thread(eventually, lambda: LAST in caplog.text, 20)
        test = asyncio.create_task(asyncio.to_thread(examine, full.mcp_url, full.token, {}, 30, lines.append))
        assert await asyncio.to_thread(eventually, lambda: any("1 before you" in line for line in lines), 20)
        await holder.__aexit__(None, None, None)
        assert (await call).text == "theirs"
    assert (await test).tools


def causes(error: BaseException) -> list[str]:
    if isinstance(error, BaseExceptionGroup):
        return [cause for one in error.exceptions for cause in causes(one)]
    return [str(error)]
