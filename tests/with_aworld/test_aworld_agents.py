"""Real AWorld agents and swarms, against a scripted model and the real calculator."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from aworld_train.agent import (
    AgentFailed,
    AgentTimedOut,
    AworldAgentLoop,
    agent_from,
    get_agent_tool_env_and_servers,
)
from aworld_train.env import EnvConnection
from aworld_train.rollout.outcome import EnvironmentLost
from tests.agents import around, question
from tests.openai_stub import OpenAIStub, RecordedRequest, Unavailable, calculates, calls, says, text_of

EXAMPLES = Path(__file__).parents[2] / "recipes/agents"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory and a home in which nothing is to be written."""
    for name in ("cwd", "home"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path


def yaml_agent(folder: Path, text: str) -> Any:
    path = folder / "agent.yaml"
    path.write_text(text)
    return agent_from({"aworld": str(path)})


ONE = "name: calculator_agent\nsystem_prompt: 'Use the {tool}.'\n"


async def test_agent_uses_its_tool_and_answers(tmp_path: Path, calculator_tools: EnvConnection) -> None:
    with OpenAIStub() as stub:
        agent = yaml_agent(tmp_path, ONE)
        agent.check()
        answer = await agent.run(question("48/2"), around(tmp_path / "run", stub, calculator_tools))
    assert answer == "<answer>24</answer>"
    first, second = stub.requests
    assert first.tools == ["calculator"]
    assert [message["role"] for message in first.messages] == ["system", "user"]
    assert text_of(first.messages[1]) == "What is 48/2?"
    assert [message["role"] for message in second.messages] == ["system", "user", "assistant", "tool"]
    assert {request.key for request in stub.requests} == {"key-of-calculator_agent"}


async def test_agent_without_a_prompt_has_the_recipe_s(tmp_path: Path) -> None:
    with OpenAIStub(lambda request: says("hm")) as stub:
        agent = yaml_agent(tmp_path, "name: plain\ntools: false\n")
        assert await agent.run(question("1"), around(tmp_path / "run", stub)) == "hm"
    assert text_of(stub.requests[0].messages[0]) == "Answer as <answer>number</answer>."
    assert not stub.requests[0].tools


async def test_many_at_the_same_time_do_not_mix_and_leave_nothing(
    tmp_path: Path, calculator_tools: EnvConnection
) -> None:
    from aworld.core.agent.base import AgentFactory
    from aworld.events import eventbus
    from aworld.sandbox.runtime import SandboxManager

    number = 48
    with OpenAIStub(delay=0.2) as stub:
        agent = yaml_agent(tmp_path, ONE)

        async def episode(i: int) -> str:
            context = around(tmp_path / "run", stub, calculator_tools, episode=str(i), seconds=200)
            return await agent.run(question(f"{i}*3"), context)

        answers = await asyncio.gather(*(episode(i) for i in range(number)))
        assert answers == [f"<answer>{3 * i}</answer>" for i in range(number)]
        for i in range(number):
            first, second = stub.of(str(i))
            assert text_of(second.messages[1]) == text_of(first.messages[1]) == f"What is {i}*3?"
            assert len(second.messages) == 4
    assert stub.max_at_once > 4
    assert not AgentFactory._agent_instance
    assert not eventbus._message_queue
    assert not SandboxManager.get_instance()._registry


async def test_swarm_asks_with_a_key_for_each_agent_and_leaves_outside_models_alone(
    tmp_path: Path, calculator_tools: EnvConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    def critic(request: RecordedRequest) -> dict[str, Any]:
        return says("checked: " + text_of(request.messages[-1]))

    monkeypatch.setenv("CRITIC_KEY", "a-paid-key")
    with OpenAIStub() as stub, OpenAIStub(critic) as outside:
        agent = yaml_agent(
            tmp_path,
            f"""
name: team
agents:
  - name: solver
    system_prompt: Solve.
  - name: critic
    system_prompt: Check.
    tools: false
    endpoint: {{url: "{outside.url()}", model: judge, key_variable: CRITIC_KEY}}
""",
        )
        answer = await agent.run(question("48/2"), around(tmp_path / "run", stub, calculator_tools))
    assert answer == "checked: <answer>24</answer>"
    assert {request.key for request in stub.requests} == {"key-of-solver"}
    (seen,) = outside.requests
    assert (seen.key, seen.body["model"], seen.tools) == ("a-paid-key", "judge", [])


async def test_team_s_leader_calls_its_member(tmp_path: Path) -> None:
    def script(request: RecordedRequest) -> dict[str, Any]:
        if request.key == "key-of-member":
            return says("it is 24")
        if request.messages[-1]["role"] == "tool":
            return says(f"<answer>{text_of(request.messages[-1])}</answer>")
        return calls(request.tools[0], content="What is 48/2?")

    with OpenAIStub(script) as stub:
        agent = yaml_agent(
            tmp_path,
            "name: team\ntopology: team\nagents:\n"
            "  - {name: leader, system_prompt: Lead., tools: false}\n"
            "  - {name: member, system_prompt: Help., tools: false, description: helps}\n",
        )
        answer = await agent.run(question("48/2"), around(tmp_path / "run", stub))
    assert "it is 24" in answer
    assert [request.key for request in stub.requests] == ["key-of-leader", "key-of-member", "key-of-leader"]


@pytest.mark.parametrize("status", [400, 500])
async def test_model_that_refuses_ends_the_episode_at_once_and_is_not_asked_again(
    tmp_path: Path, status: int
) -> None:
    def refuses(request: RecordedRequest) -> dict[str, Any]:
        raise Unavailable(status)

    with OpenAIStub(refuses) as stub:
        agent = yaml_agent(tmp_path, "name: plain\ntools: false\n")
        with pytest.raises(AgentFailed, match="out of order"):
            await agent.run(question("1"), around(tmp_path / "run", stub))
    assert len(stub.requests) == 1


async def test_empty_completion_is_an_empty_answer(tmp_path: Path) -> None:
    with OpenAIStub(lambda request: says("")) as stub:
        agent = yaml_agent(tmp_path, "name: plain\ntools: false\n")
        assert await agent.run(question("1"), around(tmp_path / "run", stub)) == ""
    assert len(stub.requests) == 1


async def test_tools_that_cannot_be_reached_end_the_episode_before_the_model_is_asked(tmp_path: Path) -> None:
    with OpenAIStub() as stub, pytest.raises(EnvironmentLost, match="calculator_agent could not list"):
        await yaml_agent(tmp_path, ONE).run(question("1"), around(tmp_path / "run", stub))
    assert not stub.requests


@pytest.mark.parametrize("by", ["time", "cancellation"])
async def test_episode_that_is_over_asks_no_more(tmp_path: Path, by: str) -> None:
    with OpenAIStub(delay=30) as stub:
        agent = yaml_agent(tmp_path, "name: plain\ntools: false\n")
        seconds = 2 if by == "time" else 60
        episode = asyncio.create_task(
            agent.run(question("1"), around(tmp_path / "run", stub, seconds=seconds))
        )
        if by == "cancellation":
            async with asyncio.timeout(20):
                while not stub.requests:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            episode.cancel()
        with pytest.raises(AgentTimedOut if by == "time" else asyncio.CancelledError):
            await episode
        requests_before = len(stub.requests)
        await asyncio.sleep(1)
        assert len(stub.requests) == requests_before <= 1


async def test_nothing_is_written_or_looked_up_outside_the_run(
    tmp_path: Path, elsewhere: Path, calculator_tools: EnvConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    import socket

    looked_up: list[Any] = []
    real = socket.getaddrinfo

    def watched(host: Any, *arguments: Any, **options: Any) -> Any:
        looked_up.append(host)
        return real(host, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", watched)
    with OpenAIStub() as stub:
        await yaml_agent(tmp_path, ONE).run(question("6*7"), around(tmp_path / "run", stub, calculator_tools))
    assert {str(host).strip("b'") for host in looked_up} <= {"127.0.0.1", "localhost"}
    for name in ("cwd", "home"):
        assert not list((elsewhere / name).iterdir())


async def test_loop_class_of_the_documentation_runs(tmp_path: Path, calculator_tools: EnvConnection) -> None:
    from aworld.agents.llm_agent import Agent
    from aworld.config.conf import AgentConfig

    class GaiaAgentLoop(AworldAgentLoop):
        async def build_agents(self) -> Any:
            gaia_env_config, gaia_env_servers = get_agent_tool_env_and_servers()
            return Agent(
                conf=AgentConfig(
                    llm_base_url=await self.get_llm_server_address(),
                    llm_model_name=await self.get_llm_server_model_name(),
                    llm_api_key="dummy",
                ),
                name="gaia_super_agent",
                system_prompt="YOUR SYSTEM PROMPT",
                mcp_config=gaia_env_config,
                mcp_servers=gaia_env_servers,
            )

    with OpenAIStub() as stub:
        context = around(tmp_path / "run", stub, calculator_tools)
        assert await GaiaAgentLoop().run_task(question("6*7"), context) == "<answer>42</answer>"
    assert {request.key for request in stub.requests} == {"key-of-gaia_super_agent"}


@pytest.mark.parametrize(
    "settings",
    [
        {"builder": f"{EXAMPLES}/aworld_calculator.py:build"},
        {"builder": f"{EXAMPLES}/aworld_swarm.py:build"},
        {"aworld": f"{EXAMPLES}/swarm.yaml"},
    ],
    ids=["builder", "swarm builder", "yaml"],
)
async def test_example_solves_the_quickstart_s_task(
    tmp_path: Path, calculator_tools: EnvConnection, settings: dict[str, Any]
) -> None:
    def script(request: RecordedRequest) -> dict[str, Any]:
        return (
            calculates(request)
            if request.tools
            else says(text_of(request.messages[-1]).split(":")[-1].strip())
        )

    with OpenAIStub(script) as stub:
        agent = agent_from(settings)
        agent.check()
        answer = await agent.run(question("48/2"), around(tmp_path / "run", stub, calculator_tools))
    assert answer == "<answer>24</answer>"
    assert len({request.key for request in stub.requests}) == (1 if "calculator" in str(settings) else 2)
