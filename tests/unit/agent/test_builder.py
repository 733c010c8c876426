"""Agents that a function builds in this process, and what they find there."""

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from aworld_train.agent import (
    AgentFailed,
    AgentTimedOut,
    AworldAgentLoop,
    agent_from,
    get_agent_tool_env_and_servers,
    tools_config,
)
from aworld_train.agent.task import AgentTask
from aworld_train.agent.tools_config import use_context
from aworld_train.errors import EnvironmentFailure, UsageError
from tests.agents import around, question


def write(folder: Path, source: str) -> str:
    """A builder file; returns the spec of its function ``build``."""
    path = folder / "my_agent.py"
    path.write_text(source)
    return f"{path}:build"


async def run(folder: Path, source: str, **options: Any) -> str:
    agent = agent_from({"builder": write(folder, source)})
    return await agent.run(question("48/2"), around(folder, **options))


@pytest.mark.parametrize("maker", ["def build()", "async def build()", "def build(context)"])
@pytest.mark.parametrize("answerer", ["def answer(task)", "async def answer(task)"])
async def test_function_may_be_sync_or_async_and_take_the_context(
    tmp_path: Path, maker: str, answerer: str
) -> None:
    source = f"{maker}:\n    {answerer}:\n        return task.text + '!'\n    return answer\n"
    assert await run(tmp_path, source) == "What is 48/2?!"


async def test_builder_can_be_named_by_module(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "their_agents.py").write_text("def make():\n    return lambda task: 'theirs'\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    agent = agent_from({"builder": "their_agents:make"})
    agent.check()
    assert await agent.run(question("1"), around(tmp_path)) == "theirs"


async def test_module_is_loaded_once_and_does_not_hold_the_loop(tmp_path: Path) -> None:
    source = "import time\ntime.sleep(3)\nbuilt = []\n"
    source += "def build():\n    built.append(1)\n    return lambda _: str(len(built))"
    agent = agent_from({"builder": write(tmp_path, source)})
    ticks = 0

    async def watch() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.01)
            ticks += 1

    watching = asyncio.create_task(watch())
    answers = await asyncio.gather(*(agent.run(question("1"), around(tmp_path)) for _ in range(3)))
    watching.cancel()
    assert max(answers) == "3"
    assert ticks > 3


async def test_many_functions_that_are_not_async_run_at_the_same_time(tmp_path: Path) -> None:
    source = "import threading\nmeeting = threading.Barrier(40, timeout=300)\n"
    source += "def build():\n    return lambda task: meeting.wait() < 40 and 'x'"
    agent = agent_from({"builder": write(tmp_path, source)})
    answers = await asyncio.gather(*(agent.run(question("1"), around(tmp_path)) for _ in range(40)))
    assert answers == ["x"] * 40


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("def build():\n    raise KeyError('x')", "KeyError: 'x'"),
        (
            "def build():\n    def answer(task):\n        raise OSError('gone')\n    return answer",
            "OSError: gone",
        ),
        ("def build():\n    return 5", "type int: return an AWorld Agent or Swarm, or a function"),
        ("def build():\n    return lambda task: None", "answer is of type NoneType"),
        ("def build():\n    return lambda task: exit(3)", "SystemExit: 3"),
        ("import no_such_module", "ModuleNotFoundError.*Install it"),
        ("def built(): pass", "Did you mean 'built'"),
        ("build = 3", "not a function"),
        ("def build(a, b): pass", r"takes \(a, b\)"),
    ],
)
async def test_what_goes_wrong_ends_the_episode_and_says_why(
    tmp_path: Path, source: str, message: str
) -> None:
    with pytest.raises(AgentFailed, match=f"(?s){message}"):
        await run(tmp_path, source)


async def test_agent_that_takes_too_long_has_timed_out(tmp_path: Path) -> None:
    source = "import asyncio\ndef build():\n    return lambda task: asyncio.sleep(60)"
    with pytest.raises(AgentTimedOut, match=r"not done after 0\.2 seconds"):
        await run(tmp_path, source, seconds=0.2)


async def test_timeout_of_the_agent_s_own_is_its_failure(tmp_path: Path) -> None:
    source = "def build():\n    def answer(task):\n        raise TimeoutError('my client')\n    return answer"
    with pytest.raises(AgentFailed, match="my client") as failed:
        await run(tmp_path, source)
    assert not isinstance(failed.value, AgentTimedOut)


@pytest.mark.parametrize("spec", ["build", "a.py:", ":f", "not a module:f", "x.py:not-a-name", 3])
def test_spec_that_names_nothing_is_refused_at_once(spec: Any) -> None:
    with pytest.raises(UsageError, match="builder"):
        agent_from({"builder": spec})


def test_check_finds_what_a_run_would(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        agent_from({"builder": f"{tmp_path}/absent.py:build"}).check()


async def test_each_episode_finds_its_own_tools(tmp_path: Path) -> None:
    async def episode(number: int) -> tuple[str, str]:
        with use_context(around(tmp_path, mcp_url=f"http://127.0.0.1:9/{number}")):
            await asyncio.sleep(0.01)
            config, servers = await asyncio.to_thread(get_agent_tool_env_and_servers, ["a", "b"])
            (server,) = servers
            entry = config["mcpServers"][server]
            return entry["url"], entry["headers"]["MCP_SERVERS"]

    found = await asyncio.gather(*(episode(number) for number in range(50)))
    assert found == [(f"http://127.0.0.1:9/{number}", "a,b") for number in range(50)]
    assert tools_config._current.get() is None


def test_outside_an_episode_the_environment_variables_say_where_the_tools_are(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MCP_SERVER_URL", raising=False)
    with pytest.raises(EnvironmentFailure, match="MCP_SERVER_URL"):
        get_agent_tool_env_and_servers()
    monkeypatch.setenv("MCP_SERVER_URL", "http://there/mcp")
    monkeypatch.setenv("MCP_SERVER_TOKEN", "t")
    config, servers = get_agent_tool_env_and_servers()
    entry = config["mcpServers"][servers[0]]
    assert entry["headers"] == {"Authorization": "Bearer t"}
    assert entry["type"] == "streamable-http"
    assert entry["timeout"] == entry["sse_read_timeout"] == entry["client_session_timeout_seconds"] == 600


@pytest.mark.parametrize("is_async", [True, False])
async def test_loop_class_builds_with_the_episode_s_model(tmp_path: Path, is_async: bool) -> None:
    class Loop(AworldAgentLoop):
        async def build_agents(self) -> Any:
            address, model = await self.get_llm_server_address(), await self.get_llm_server_model_name()
            return lambda task: f"{address} {model}"

    class PlainLoop(AworldAgentLoop):
        def build_agents(self) -> Any:
            return lambda task: "plain"

    answer = await (Loop if is_async else PlainLoop)().run_task(question("1"), around(tmp_path))
    assert answer == ("http://127.0.0.1:9/v1 the-model" if is_async else "plain")


async def test_loop_class_outside_an_episode_says_so() -> None:
    with pytest.raises(AgentFailed, match="no episode is under way"):
        await AworldAgentLoop().get_llm_server_address()


def test_text_of_a_task_is_its_last_user_message() -> None:
    parts = [{"type": "text", "text": "two "}, {"type": "image_url"}, {"type": "text", "text": "parts"}]
    task = AgentTask([{"role": "user", "content": "one"}, {"role": "user", "content": parts}])
    assert task.text == "two parts"
    assert AgentTask([]).text == ""


def test_importing_agents_imports_no_framework() -> None:
    names = ["aworld", "torch", "ray", "verl", "transformers", "mcp", "openai"]
    program = f"import sys, aworld_train.agent; print([name for name in {names!r} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_an_episode_context_does_not_show_its_token(tmp_path: Path) -> None:
    assert "the-episode's" not in repr(around(tmp_path))
