"""A loop of four turns is one row, whatever the framework and what it sends by default; so is a coding agent's task.

The clients of OpenAI and Anthropic are part of every run. The frameworks have the marker ``frameworks``, and an
interpreter of their own that is made from the package index: ``pytest -m frameworks tests/integration``. Coding agents
come from npm.
"""

import re
import sys
from pathlib import Path

import pytest

from tests.aworld_environment import clients_python
from tests.frameworks import coding_agents
from tests.frameworks.episodes import SCRIPTS, Played, play

OFFICIAL = ("openai_chat", "openai_parse", "openai_responses", "anthropic_messages")


def check(played: Played) -> None:
    assert played.printed.strip().splitlines()[-1:] == ["answer: 10"], played.printed
    [(_, row)] = played.episode.rows()
    assert len(row.turns) == 4
    assert not played.episode.branches
    assert not played.episode.misses
    # The row is the last model call: its input, and what was sampled, up to a stop text.
    prompt, sampled = played.model.calls[-1]
    tokens = row.prompt + row.response
    assert len(tokens) > len(prompt)
    assert tokens == (prompt + sampled.tokens)[: len(tokens)]


@pytest.mark.parametrize("name", OFFICIAL)
async def test_a_loop_of_an_official_client_is_one_row(name: str) -> None:
    check(await play(sys.executable, name))


@pytest.mark.frameworks
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", SCRIPTS)
async def test_a_loop_of_a_framework_is_one_row(name: str) -> None:
    check(await play(str(clients_python()), name))


@pytest.mark.frameworks
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", coding_agents.AGENTS)
async def test_a_coding_agent_s_task_is_one_row_and_so_is_its_helper_s(name: str, tmp_path: Path) -> None:
    agent = coding_agents.AGENTS[name]
    played = await coding_agents.play(agent, coding_agents.installed(agent), tmp_path)
    model, episode = played.model, played.episode
    assert len(model.sent) == len(agent.script), played.printed
    assert episode.failure is None
    decode, rows = model.tokenizer.decode, [row for _, row in episode.rows()]
    trained = [
        [decode(row.response[begin:end]) for begin, end in row.turns if row.mask[begin]] for row in rows
    ]
    ended = [f"{turn}{model.tokenizer.eos_token}" for turn in (*model.sent, coding_agents.HELPED)]
    (task,) = [
        row for row, turns in zip(rows, trained, strict=True) if turns[: len(model.sent)] == ended[:-1]
    ]
    assert ended[-1:] in trained
    # What it was shown: the file, the picture that this model cannot see, and what its helper came to.
    shown = decode(task.prompt + task.response)
    assert all(text in shown for text in (coding_agents.NOTES, coding_agents.HELPED))
    assert re.search("image content, not shown|does not support image", shown)
    # It went on in a context of its own, and each token that was sampled is trained on once.
    last_prompt, _ = model.calls[-1]
    assert last_prompt != (task.prompt + task.response)[: len(last_prompt)]
    assert sum(sum(row.mask) for row in rows) == sum(len(turn.tokens) for _, turn in model.calls)
