"""What tests of agents share: episode contexts that point at a stub, and a calculator to call."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aworld_train.agent import AgentTask, EpisodeContext
from aworld_train.env import EnvConnection, down, up
from tests.openai_stub import OpenAIStub

NO_TOOLS = "http://127.0.0.1:9/mcp"
"""Nothing answers there."""


def question(expression: str, **extra: Any) -> AgentTask:
    """The task of the quickstart."""
    messages = [
        {"role": "system", "content": "Answer as <answer>number</answer>."},
        {"role": "user", "content": f"What is {expression}?"},
    ]
    return AgentTask(messages, extra=extra)


def around(
    folder: Path,
    stub: OpenAIStub | None = None,
    tools: EnvConnection | None = None,
    *,
    episode: str = "one",
    seconds: float = 60,
    mcp_url: str = NO_TOOLS,
) -> EpisodeContext:
    """The context of an episode; the key says which agent asks."""
    url = stub.url(episode) if stub else "http://127.0.0.1:9/v1"
    return EpisodeContext(
        llm_url=lambda name: url,
        llm_key=lambda name: f"key-of-{name}",
        model="the-model",
        mcp_url=tools.mcp_url if tools else mcp_url,
        mcp_token=tools.token if tools else "the-episode's",
        mcp_servers=(),
        folder=folder,
        seconds=seconds,
    )


@pytest.fixture(scope="session", name="calculator_tools")
def calculator_tools_fixture(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EnvConnection]:
    """The calculator environment, up."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWORLD_TRAIN_STATE", str(tmp_path_factory.mktemp("state")))
        name = f"agents-{os.getpid()}"
        yield up("calculator-mcp-server", name=name, backend="process", owner_pid=os.getpid(), wait=120)
        down(name)
