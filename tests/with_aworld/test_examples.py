"""The examples that users copy solve the quickstart's task; each where its packages are installed."""

import asyncio
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from aworld_train.agent import agent_from
from aworld_train.env import EnvConnection
from tests.agents import around, question
from tests.openai_stub import OpenAIStub, text_of

EXAMPLES = Path(__file__).parents[2] / "recipes/agents"


def needs(*packages: str) -> Any:
    missing = [name for name in packages if find_spec(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"no {', '.join(missing)}")


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(
            {"command": ["python", f"{EXAMPLES}/openai_script.py"]}, marks=needs("openai", "mcp"), id="script"
        ),
        pytest.param(
            {"builder": f"{EXAMPLES}/openai_agents_sdk.py:build"}, marks=needs("agents"), id="agents-sdk"
        ),
        pytest.param(
            {"builder": f"{EXAMPLES}/langgraph_agent.py:build"},
            marks=needs("langgraph", "langchain_openai", "langchain_mcp_adapters"),
            id="langgraph",
        ),
    ],
)
async def test_example_solves_the_quickstart_s_task(
    tmp_path: Path, calculator_tools: EnvConnection, settings: dict[str, Any]
) -> None:
    with OpenAIStub() as stub:
        agent = agent_from(settings)
        agent.check()

        async def episode(number: int) -> str:
            context = around(tmp_path / "run", stub, calculator_tools, episode=str(number), seconds=120)
            return await agent.run(question(f"{number}*3"), context)

        answers = await asyncio.gather(*(episode(number) for number in range(3)))
        assert answers == [f"<answer>{3 * number}</answer>" for number in range(3)]
        for number in range(3):
            first, second = stub.of(str(number))
            assert first.tools == ["calculator"]
            assert text_of(first.messages[0]) == "Answer as <answer>number</answer>."
            assert second.messages[: len(first.messages)] == first.messages
