"""Agents in the forms that AWorld's documents show: built by a loop, as a swarm, or handed to a trainer as objects."""

from pathlib import Path
from typing import Any

import pytest
from aworld.agents.llm_agent import Agent
from aworld.config import AgentConfig
from aworld.core.agent.swarm import Swarm

from aworld_train.agent import (
    AgentFailed,
    AWorldAgentLoop,
    agent_from,
    get_agent_tool_env_and_servers,
)
from aworld_train.agent.pickled_agent import load_pickled, pickle_agent
from aworld_train.env import EnvConnection
from aworld_train.errors import UsageError
from tests.agents import around, question
from tests.openai_stub import OpenAIStub, RecordedRequest, calculates, says, text_of

KEY = "sk-of-the-user-1234"


@pytest.fixture(name="trap", autouse=True)
def trap_fixture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The user's own endpoint, which no agent may ask that does not name it."""
    with OpenAIStub() as trap:
        for name in ("OPENAI_BASE_URL", "OPENAI_ENDPOINT", "LLM_BASE_URL"):
            monkeypatch.setenv(name, trap.url())
        for name in ("OPENAI_API_KEY", "LLM_API_KEY"):
            monkeypatch.setenv(name, KEY)
        monkeypatch.setenv("LLM_MODEL_NAME", "gpt-4o")
        (tmp_path / "cwd").mkdir()
        monkeypatch.chdir(tmp_path / "cwd")
        yield trap
    assert not trap.requests


def carried(agent: Any, folder: Path) -> Any:
    """The agent as a worker process has it."""
    reference = pickle_agent(agent, folder / "data", "t-agent")
    assert (folder / "data/t-agent.pickle").stat().st_mode & 0o777 == 0o600
    loaded = agent_from({"builder": reference})
    loaded.check()
    return loaded


NO_MODEL = [
    {"llm_provider": "verl", "top_k": 80},
    {"llm_provider": "verl", "llm_base_url": "http://127.0.0.1:9/elsewhere", "llm_api_key": "dummy"},
    {"llm_model_name": "gpt-4o"},
    {"llm_model_name": "claude-3-opus"},
    {"llm_provider": "openai"},
    {"llm_base_url": "", "llm_model_name": "", "llm_api_key": ""},
    {},
]


@pytest.mark.parametrize("conf", NO_MODEL, ids=str)
async def test_an_agent_that_names_no_model_is_the_one_in_training(
    tmp_path: Path, calculator_tools: EnvConnection, monkeypatch: pytest.MonkeyPatch, conf: dict[str, Any]
) -> None:
    monkeypatch.setenv("MCP_SERVER_URL", calculator_tools.mcp_url)
    monkeypatch.setenv("MCP_SERVER_TOKEN", calculator_tools.token)
    config, servers = get_agent_tool_env_and_servers()
    agent = carried(
        Agent(name="solver", conf=AgentConfig(**conf), mcp_config=config, mcp_servers=servers), tmp_path
    )
    with OpenAIStub() as stub:
        answer = await agent.run(question("48/2"), around(tmp_path / "run", stub, calculator_tools))
        again = await agent.run(
            question("6*7"), around(tmp_path / "run", stub, calculator_tools, episode="b")
        )
    assert (answer, again) == ("<answer>24</answer>", "<answer>42</answer>")
    assert {request.key for request in stub.requests} == {"key-of-solver"}
    assert [len(stub.of(name)) for name in ("one", "b")] == [2, 2]


async def test_an_agent_without_a_configuration_is_in_training(tmp_path: Path) -> None:
    with OpenAIStub(lambda request: says("hm")) as stub:
        agent = carried(Agent(name="plain"), tmp_path)
        assert await agent.run(question("1"), around(tmp_path / "run", stub)) == "hm"
    assert len(stub.requests) == 1


async def test_a_supporting_agent_asks_its_own_model_with_its_own_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CRITIC_KEY", "key-of-the-critic")

    def critic(request: RecordedRequest) -> dict[str, Any]:
        return says("checked: " + text_of(request.messages[-1]))

    with OpenAIStub(lambda request: says("24")) as stub, OpenAIStub(critic) as outside:
        swarm = Swarm(
            Agent(name="solver", conf=AgentConfig(llm_provider="verl")),
            Agent(
                name="critic",
                conf=AgentConfig(
                    llm_base_url=outside.url(), llm_model_name="judge", llm_api_key="key-of-the-critic"
                ),
            ),
        )
        agent = carried(swarm, tmp_path)
        answer = await agent.run(question("48/2"), around(tmp_path / "run", stub))
    assert answer == "checked: 24"
    assert [request.key for request in stub.requests] == ["key-of-solver"]
    assert [request.key for request in outside.requests] == ["key-of-the-critic"]


async def test_a_supporting_agent_without_a_key_does_not_use_the_trainers(tmp_path: Path) -> None:
    with OpenAIStub(lambda request: says("a")) as stub, OpenAIStub(lambda request: says("b")) as outside:
        swarm = Swarm(
            Agent(name="solver", conf=AgentConfig()),
            Agent(
                name="critic",
                conf=AgentConfig(llm_base_url=outside.url(), llm_model_name="claude-judge"),
            ),
        )
        assert await carried(swarm, tmp_path).run(question("1"), around(tmp_path / "run", stub)) == "b"
    assert [request.key for request in outside.requests] == ["unused"]


async def test_a_provider_without_an_address_is_refused(tmp_path: Path) -> None:
    agent = carried(Agent(name="a", conf=AgentConfig(llm_provider="anthropic")), tmp_path)
    with (
        OpenAIStub() as stub,
        pytest.raises(AgentFailed, match="llm_provider='anthropic' and no llm_base_url"),
    ):
        await agent.run(question("1"), around(tmp_path / "run", stub))
    assert not stub.requests


def test_no_secret_is_written_with_an_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INVITATION_CODE", "inv-4711-code")
    server = {
        "type": "streamable-http",
        "url": "https://tools.example/mcp",
        "headers": {"Authorization": "Bearer inv-4711-code", "ENV_CODE": "gaia"},
    }
    agent = Agent(
        name="gaia",
        conf=AgentConfig(llm_base_url="http://llm.example/v1", llm_api_key=KEY),
        mcp_config={"mcpServers": {"gaia_server": server}},
        mcp_servers=["gaia_server"],
    )
    reference = pickle_agent(agent, tmp_path, "agent")
    content = (tmp_path / "agent.pickle").read_bytes()
    assert b"inv-4711" not in content and KEY.encode() not in content
    loaded = load_pickled(reference)()
    assert loaded.mcp_config == agent.mcp_config and loaded.conf.llm_config.llm_api_key == KEY
    assert loaded.sandbox is not agent.sandbox
    monkeypatch.delenv("INVITATION_CODE")
    with pytest.raises(UsageError, match="INVITATION_CODE, which is not set"):
        load_pickled(reference)()


@pytest.mark.parametrize("place", ["conf", "header", "attribute"])
def test_a_secret_that_is_written_out_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    server: dict[str, Any] = {"type": "streamable-http", "url": "https://tools.example/mcp", "headers": {}}
    agent = Agent(name="a", conf=AgentConfig(llm_base_url="http://x/v1", llm_api_key="unused"))
    if place == "conf":
        agent.conf.llm_config.llm_api_key = "sk-written-out-0001"
    if place == "header":
        server["headers"]["X-Api-Key"] = "written-out-0001"
        agent.mcp_config = {"mcpServers": {"s": server}}
    if place == "attribute":
        agent.note = f"use {KEY}"
    with pytest.raises(UsageError, match=r"os.environ\[\.\.\.\]"):
        pickle_agent(agent, tmp_path, "a")
    assert not list(tmp_path.glob("*.pickle"))


def test_what_cannot_be_written_is_refused_with_the_form_that_works(tmp_path: Path) -> None:
    agent = Agent(name="a", conf=AgentConfig())
    agent.file = (tmp_path / "open").open("w")
    with agent.file, pytest.raises(UsageError, match=r"cannot be carried.*AgentTrainer\(agent=build\)"):
        pickle_agent(agent, tmp_path, "a")


class OwnAgent(Agent):  # type: ignore[misc]
    """An agent with code of its own."""

    async def async_policy(self, observation: Any, *arguments: Any, **options: Any) -> Any:
        observation.content = str(observation.content).replace("What is", "Please: what is")
        return await super().async_policy(observation, *arguments, **options)


async def test_a_class_of_the_users_keeps_its_code(tmp_path: Path) -> None:
    with OpenAIStub(lambda request: says("ok")) as stub:
        agent = carried(OwnAgent(name="own", conf=AgentConfig()), tmp_path)
        assert await agent.run(question("1"), around(tmp_path / "run", stub)) == "ok"
    assert "Please: what is 1?" in text_of(stub.requests[0].messages[-1])


@pytest.mark.parametrize("awaited", [True, False], ids=["async", "plain"])
async def test_a_loop_may_build_with_or_without_await(
    tmp_path: Path, calculator_tools: EnvConnection, awaited: bool
) -> None:
    def made(address: str, model: str) -> Any:
        config, servers = get_agent_tool_env_and_servers()
        conf = AgentConfig(llm_base_url=address, llm_model_name=model, llm_api_key="dummy")
        return Agent(conf=conf, name="gaia", mcp_config=config, mcp_servers=servers)

    class Awaiting(AWorldAgentLoop):
        async def build_agents(self) -> Any:
            return made(await self.get_llm_server_address(), await self.get_llm_server_model_name())

    class Plain(AWorldAgentLoop):
        def build_agents(self) -> Any:
            return made(self.get_llm_server_address(), self.get_llm_server_model_name())

    with OpenAIStub(calculates) as stub:
        loop = Awaiting() if awaited else Plain()
        answer = await loop.run_task(question("6*7"), around(tmp_path / "run", stub, calculator_tools))
    assert answer == "<answer>42</answer>"
    assert {request.key for request in stub.requests} == {"key-of-gaia"}
