"""Agents at the tool gateway before real environments: isolated workers, lost workers, workers that are all busy."""

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import httpx
import pytest
from mcp import ClientSession, McpError

from aworld_train.env import EnvConnection, down, up
from aworld_train.rollout.cassette import Cassette, Mode
from aworld_train.rollout.outcome import EnvironmentLost
from aworld_train.rollout.tool_gateway import ToolGateway, ToolGatewaySession
from aworld_train.rollout.tools import ToolServer
from tests.environments import ODD, call, eventually, text_of, workers
from tests.tool_servers import agent

# The function that every supported release of the MCP SDK has is deprecated in the latest ones.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Use `streamable_http_client`:DeprecationWarning"),
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
]


@pytest.fixture(scope="module")
def calculator() -> Iterator[EnvConnection]:
    yield up("calculator-mcp-server", name="behind-gateway", backend="process", workers=2)
    down("behind-gateway")


@pytest.fixture(scope="module")
def strange() -> Iterator[EnvConnection]:
    """Tools that misbehave, behind two workers."""
    yield up(ODD, name="strange", backend="process", workers=2, wait=120)
    down("strange")


@pytest.fixture
async def gateway() -> AsyncIterator[ToolGateway]:
    one = ToolGateway()
    yield one
    await one.stop()


def tools(connection: EnvConnection, servers: str = "", **limits: float) -> ToolServer:
    headers = {"Authorization": f"Bearer {connection.token}", **({"MCP_SERVERS": servers} if servers else {})}
    return ToolServer(connection.mcp_url, headers, **limits)


def open_sessions(connection: EnvConnection) -> int:
    health = httpx.get(f"http://{connection.ip}:{connection.port}/health").json()
    return int(health["sessions"])


async def test_thirty_two_episodes_share_two_workers_and_none_fails(
    gateway: ToolGateway, calculator: EnvConnection
) -> None:
    async def episode(number: int) -> ToolGatewaySession:
        gateway_session = await gateway.open_session(tools(calculator))
        async with agent(gateway_session.url) as session:
            for step in range(3):
                assert await call(session, "calculator", expression=f"{number}*{step}") == str(number * step)
        await gateway_session.close()
        return gateway_session

    async with asyncio.timeout(120):
        gateway_sessions = await asyncio.gather(*map(episode, range(32)))
    assert [gateway_session.counts.calls for gateway_session in gateway_sessions] == [3] * 32
    assert not any(
        gateway_session.lost or gateway_session.counts.errors for gateway_session in gateway_sessions
    )
    assert eventually(lambda: open_sessions(calculator) == 0)


async def test_the_chosen_servers_are_forwarded_and_an_unknown_one_is_a_lost_environment_that_says_why(
    gateway: ToolGateway, strange: EnvConnection
) -> None:
    chosen = await gateway.open_session(tools(strange, "other"))
    async with agent(chosen.url) as session:
        assert {tool.name for tool in (await session.list_tools()).tools} == {"same_name", "others_key"}
    unknown = await gateway.open_session(tools(strange, "othr"))
    with pytest.raises((ExceptionGroup, McpError)):
        async with agent(unknown.url):
            pass
    assert "Did you mean 'other'" in str(unknown.lost)


async def test_progress_and_a_call_given_up_reach_the_other_side(
    gateway: ToolGateway, strange: EnvConnection
) -> None:
    seen: list[float] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        seen.append(progress)

    gateway_session = await gateway.open_session(tools(strange, call_timeout=4.0))
    async with agent(gateway_session.url) as session:
        assert text_of(await session.call_tool("wait", {"seconds": 0.5}, progress_callback=note)) == "waited"
        assert seen == list(range(10))
        given_up = await session.call_tool("wait", {"seconds": 15})
        assert given_up.isError
        listing = "for i in $(seq 15); do ls; sleep 0.02; done | sort -u"
        assert "cancelled" in await call(session, "shell", command=listing)
    assert (gateway_session.counts.calls, gateway_session.counts.errors, gateway_session.lost) == (3, 1, None)


async def test_a_tool_server_that_crashes_is_a_failed_call_and_no_lost_environment(
    gateway: ToolGateway, strange: EnvConnection
) -> None:
    gateway_session = await gateway.open_session(tools(strange))
    async with agent(gateway_session.url) as session:
        with pytest.raises(McpError):
            await session.call_tool("crash", {})
        assert await call(session, "echo", text="still here") == "still here"
    assert (gateway_session.counts.calls, gateway_session.counts.errors, gateway_session.lost) == (2, 1, None)


async def test_a_worker_killed_in_the_middle_of_a_call_is_the_episode_s_typed_failure(
    gateway: ToolGateway, strange: EnvConnection, tmp_path: Path
) -> None:
    cassette = Cassette(tmp_path / "c", Mode.record)
    gateway_session = await gateway.open_session(tools(strange), cassette)
    async with agent(gateway_session.url) as session:
        assert await call(session, "echo", text="a") == "a"
        waiting = asyncio.create_task(session.call_tool("wait", {"seconds": 60}))
        await asyncio.sleep(0.5)
        for worker in workers("strange"):
            worker.kill()
        with pytest.raises(McpError) as caught:
            await waiting
        assert caught.value.error.data == {"type": "worker_lost"}
        with pytest.raises(McpError) as caught:
            await session.call_tool("echo", {"text": "b"})
        assert caught.value.error.data == {"type": "environment_lost"}
    await gateway_session.close()
    assert isinstance(gateway_session.lost, EnvironmentLost)
    assert (gateway_session.counts.calls, gateway_session.counts.errors) == (3, 2)
    assert cassette.find(cassette.key("local", "wait", {"seconds": 60})) is None
    # The environment comes back, and the next episode has it.
    fresh = await gateway.open_session(tools(strange))
    async with agent(fresh.url) as session:
        assert await call(session, "echo", text="c") == "c"
    assert fresh.lost is None


async def test_episodes_wait_for_a_worker_where_the_environment_itself_would_refuse_them(
    gateway: ToolGateway,
) -> None:
    full = up(
        ODD,
        name="full",
        backend="process",
        workers=1,
        limits={"queue": 0, "queue_seconds": 0.1},
    )

    async def episode(number: int) -> str:
        gateway_session = await gateway.open_session(tools(full))
        async with agent(gateway_session.url) as session:
            result = await call(session, "echo", text=str(number))
            await asyncio.sleep(0.3)
        assert gateway_session.lost is None
        return result

    try:
        assert await asyncio.gather(*map(episode, range(4))) == ["0", "1", "2", "3"]
        async with AsyncExitStack() as stack:
            held = await gateway.open_session(tools(full))
            await stack.enter_async_context(agent(held.url))
            hopeless = await gateway.open_session(tools(full, connect_timeout=2.0))
            with pytest.raises((ExceptionGroup, McpError)):
                async with agent(hopeless.url):
                    pass
        assert "did not open a session within 2 seconds" in str(hopeless.lost)
    finally:
        down("full")


async def test_an_agent_that_is_killed_leaves_its_worker_to_the_next(
    gateway: ToolGateway, calculator: EnvConnection
) -> None:
    async def play(gateway_session: ToolGatewaySession) -> None:
        async with agent(gateway_session.url) as session:
            await use(session)

    async def use(session: ClientSession) -> None:
        await call(session, "calculator", expression="1")
        await asyncio.sleep(600)

    gateway_sessions = [await gateway.open_session(tools(calculator)) for _ in range(2)]
    episodes = [asyncio.create_task(play(gateway_session)) for gateway_session in gateway_sessions]
    assert await asyncio.to_thread(eventually, lambda: all(one.counts.calls for one in gateway_sessions))
    await asyncio.gather(*(gateway_session.close() for gateway_session in gateway_sessions))
    assert eventually(lambda: open_sessions(calculator) == 0, 5)
    for one in episodes:
        one.cancel()
    await asyncio.wait(episodes, timeout=10)


async def test_an_environment_is_replayed_after_it_was_stopped(gateway: ToolGateway, tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    connection = up("calculator-mcp-server", name="recorded", backend="process", workers=1)
    try:
        recording = await gateway.open_session(tools(connection), Cassette(path, Mode.record))
        async with agent(recording.url) as session:
            listed = await session.list_tools()
            answers = [await session.call_tool("calculator", {"expression": text}) for text in ("6*7", "1/0")]
        await recording.close()
    finally:
        down("recorded")
    assert connection.token not in path.read_text()
    replaying = await gateway.open_session(tools(connection), Cassette(path, Mode.replay))
    async with agent(replaying.url) as session:
        assert await session.list_tools() == listed
        assert [
            await session.call_tool("calculator", {"expression": text}) for text in ("6*7", "1/0")
        ] == answers
    assert replaying.lost is None and replaying.counts.replayed == 2
