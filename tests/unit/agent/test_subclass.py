"""An agent that is a user-defined class: one object per episode, and errors are reported before an episode."""

import asyncio
from pathlib import Path

import pytest

from aworld_train.agent import AgentFailed, agent_from
from aworld_train.errors import UsageError
from tests.agents import around, question

GOOD = """
from aworld_train.agent import AworldAgentLoop

class Mine(AworldAgentLoop):
    made = 0

    def __init__(self):
        Mine.made += 1
        self.number = Mine.made

    async def build_agents(self):
        address = await self.get_llm_server_address()
        return lambda task: f"{task.text} {address} {self.number}"
"""


def write(folder: Path, source: str, name: str = "Mine") -> str:
    path = folder / "my_loop.py"
    path.write_text(source)
    return f"{path}:{name}"


async def test_each_episode_has_an_object_of_its_own(tmp_path: Path) -> None:
    agent = agent_from({"loop": write(tmp_path, GOOD)})
    agent.check()
    answers = await asyncio.gather(*(agent.run(question(str(i)), around(tmp_path)) for i in range(5)))
    assert sorted(answer.split()[-1] for answer in answers) == ["1", "2", "3", "4", "5"]
    assert [answer.rpartition(" ")[0] for answer in answers] == [
        f"What is {i}? http://127.0.0.1:9/v1" for i in range(5)
    ]


@pytest.mark.parametrize(
    ("source", "name", "sentence"),
    [
        ("class Mine: pass", "Mine", "is not a subclass of AworldAgentLoop"),
        ("def Mine(): pass", "Mine", "is not a subclass of AworldAgentLoop"),
        (GOOD, "Mina", "Did you mean 'Mine'?"),
        ("import nothing_like_it", "Mine", "No module named 'nothing_like_it'"),
        (
            "from aworld_train.agent import AworldAgentLoop\nclass Mine(AworldAgentLoop):\n    def build(self): ...",
            "Mine",
            "does not define build_agents()",
        ),
    ],
)
async def test_what_is_no_such_class_is_said_by_the_check_and_by_the_episode(
    tmp_path: Path, source: str, name: str, sentence: str
) -> None:
    agent = agent_from({"loop": write(tmp_path, source, name)})
    with pytest.raises(UsageError) as error:
        agent.check()
    assert sentence in error.value.message
    with pytest.raises(AgentFailed) as failed:
        await agent.run(question("1"), around(tmp_path))
    assert sentence in str(failed.value)


@pytest.mark.parametrize(
    ("body", "cause"),
    [
        ("def __init__(self): raise RuntimeError('no licence')", "RuntimeError: no licence"),
        ("def __init__(self, wanted): pass", "wanted"),
        ("def build_agents(self): raise RuntimeError('no licence')", "no licence"),
    ],
)
async def test_a_class_that_breaks_is_the_agent_s_failure(tmp_path: Path, body: str, cause: str) -> None:
    source = (
        "from aworld_train.agent import AworldAgentLoop\n\nclass Mine(AworldAgentLoop):\n"
        f"    def build_agents(self): return lambda task: 'x'\n    {body}\n"
    )
    agent = agent_from({"loop": write(tmp_path, source)})
    agent.check()
    with pytest.raises(AgentFailed, match=cause):
        await agent.run(question("1"), around(tmp_path))
