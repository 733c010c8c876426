"""How long a tool call may take, with a real environment: as long as its server allows, or less if one says so."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from mcp import ClientSession
from mcp.client.streamable_http import streamablehttp_client

from aworld_train import recipe as recipes
from aworld_train.env import EnvConnection, down, examine, up
from aworld_train.rollout import tools as tools_module
from aworld_train.rollout.tool_gateway import ToolGateway
from aworld_train.rollout.tools import ToolServer, ToolSession
from aworld_train.training.environment import run_environment
from tests.environments import make_slow_directory

# The function that every supported release of the MCP SDK has is deprecated in the latest ones.
pytestmark = pytest.mark.filterwarnings("ignore:Use `streamable_http_client`:DeprecationWarning")

LIMIT = 4.0
OWN_ERROR = "sleeper did not answer within 4 seconds"


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_slow_directory(tmp_path_factory.mktemp("made") / "slow", seconds=0, timeout=LIMIT)


@pytest.fixture(scope="module")
def slow(directory: Path) -> Iterator[EnvConnection]:
    yield up(directory, name="slow-calls", backend="process", workers=1)
    down("slow-calls")


@pytest.fixture
def server(slow: EnvConnection, monkeypatch: pytest.MonkeyPatch) -> ToolServer:
    """The environment; where a server tells no limits, half a second would be all that a call may take."""
    monkeypatch.setattr(tools_module, "_CALL_SECONDS", 0.5)
    return ToolServer(slow.mcp_url, {"Authorization": f"Bearer {slow.token}"}, connect_timeout=60)


def test_an_environment_tells_the_limits_of_its_servers(slow: EnvConnection) -> None:
    assert examine(slow.mcp_url, slow.token, {}, 60).limits == {"sleeper": LIMIT}


async def test_without_a_limit_of_its_own_a_client_waits_for_what_the_server_may_take(
    server: ToolServer,
) -> None:
    async with ToolSession(server) as tools:
        assert (await tools.call("rest", {"seconds": 2})).text == "rested"
        late = await tools.call("rest", {"seconds": 600})
        assert late.is_error and OWN_ERROR in late.text


@pytest.mark.parametrize(("seconds", "error"), [(1.0, "no answer within 1 seconds"), (600.0, OWN_ERROR)])
async def test_the_shorter_of_both_limits_holds(server: ToolServer, seconds: float, error: str) -> None:
    async with ToolSession(replace(server, call_timeout=seconds)) as tools:
        late = await tools.call("rest", {"seconds": 600})
        assert late.is_error and error in late.text


async def test_an_agent_behind_the_tool_gateway_has_the_same_limits(server: ToolServer) -> None:
    gateway = ToolGateway()
    episode = await gateway.open_session(server)
    try:
        async with (
            streamablehttp_client(episode.url) as (read, write, _),
            ClientSession(read, write, read_timeout_seconds=timedelta(seconds=60)) as agent,
        ):
            await agent.initialize()
            result = await agent.call_tool("rest", {"seconds": 2})
            assert not result.isError and "rested" in str(result.content)
    finally:
        await episode.close()
        await gateway.stop()


def test_a_run_says_what_its_limit_means_for_an_environment_that_is_up(slow: EnvConnection) -> None:
    lines: list[str] = []
    loaded = recipes.load({"agent": {"tool_timeout": 2}, "env": {"url": slow.mcp_url}})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MCP_SERVER_TOKEN", slow.token)
        with run_environment(loaded, lines.append):
            pass
    assert lines == [
        "agent.tool_timeout is 2: calls end before the tool servers' own limits, which are 4 s (sleeper). Leave it "
        "out to use those."
    ]


def test_a_run_says_what_its_limit_means_for_an_environment_that_it_starts(directory: Path) -> None:
    lines: list[str] = []
    env = {"docker_dir": str(directory), "backend": "process", "workers": 1}
    with run_environment(recipes.load({"agent": {"tool_timeout": 9}, "env": env}), lines.append):
        pass
    assert any("agent.tool_timeout is 9 and gives no call more time" in line for line in lines)
