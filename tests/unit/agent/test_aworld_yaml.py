"""An ``agent.yaml`` is read whole and checked before anything runs; no AWorld is needed for that."""

from pathlib import Path
from typing import Any

import pytest

from aworld_train.agent.aworld_yaml import (
    AgentDescription,
    ModelEndpoint,
    SwarmDescription,
    YamlAgent,
    read_description,
)
from aworld_train.errors import UsageError
from tests.locations import REPOSITORY

TWO = "name: t\nagents:\n  - name: a\n  - name: b\n"


def written(folder: Path, text: str) -> Path:
    path = folder / "agent.yaml"
    path.write_text(text)
    return path


def test_one_agent(tmp_path: Path) -> None:
    found = read_description(written(tmp_path, "name: a\nsystem_prompt: Hi.\ntools: [x, y]\n"))
    assert found == AgentDescription("a", system_prompt="Hi.", tools=("x", "y"))
    empty = read_description(written(tmp_path, "name: a\nsystem_prompt: ''\ndescription: ''\n"))
    assert empty == AgentDescription("a")


def test_swarm_with_an_outside_model(tmp_path: Path) -> None:
    text = TWO + "    tools: false\n    endpoint: {url: 'https://x/v1', model: m, key_variable: K}\n"
    found = read_description(written(tmp_path, text))
    outside = AgentDescription("b", tools=False, endpoint=ModelEndpoint("https://x/v1", "m", "K"))
    assert found == SwarmDescription("t", (AgentDescription("a"), outside))


def test_handoffs_are_pairs_of_agents(tmp_path: Path) -> None:
    found: Any = read_description(written(tmp_path, TWO + "topology: handoff\nhandoffs: [[a, b], [b, a]]\n"))
    assert found.handoffs == (("a", "b"), ("b", "a"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "describes no agent"),
        ("- name: a", "describes no agent"),
        ("name: [", "cannot be read"),
        ("system_prompt: x", "missing required field `name`"),
        ("name: ''", "Expected `str` of length >= 1 at `name`"),
        ("name: a\nsystem_prompt: null", "Expected `str`, got `null` at `system_prompt`"),
        ("name: a\nsystem_promt: x", "unknown field `system_promt`. Did you mean `system_prompt`"),
        ("name: a\ntools: calculator", "Expected `bool | array`, got `str` at `tools`"),
        ("name: a\ntemperature: hot", "Expected `float`, got `str` at `temperature`"),
        (
            "name: a\nendpoint: {url: x, model: m, key_variable: K}",
            "matching regex '^https?://' at `endpoint.url`",
        ),
        (
            "name: a\nendpoint: {url: 'http://x', model: m}",
            "missing required field `key_variable` at `endpoint`",
        ),
        (
            "name: a\nendpoint: {url: 'http://x', model: m, key_variable: K, api_key: s}",
            "unknown field `api_key` at `endpoint`",
        ),
        (
            "name: a\nmax_steps: many\nendpoint: {url: 'http://x', model: m, key_variable: K}",
            "agent.yaml: Expected `int`, got `str` at `max_steps`",
        ),
        ("name: t\nagents: []", "Expected `array` of length >= 1 at `agents`"),
        ("name: t\nagents: [a]", "Expected `object`, got `str` at `agents[0]`"),
        ("name: t\nagents: [{name: a}, {name: a}]", "the same name"),
        (TWO + "topology: ring", "Invalid enum value 'ring' at `topology`"),
        (TWO + "topology: handoff", "go together"),
        (TWO + "handoffs: [[a, b]]", "go together"),
        (TWO + "topology: handoff\nhandoffs: [[a, c]]", "names 'c'; the agents are a, b"),
        (TWO + "topology: handoff\nhandoffs: [a, b]", "Expected `array`, got `str` at `handoffs[0]`"),
    ],
)
def test_what_cannot_be_is_said_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UsageError) as refused:
        YamlAgent(written(tmp_path, text))
    assert message in refused.value.message
    assert "agent.yaml" in refused.value.message


def test_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"nowhere\.yaml cannot be read"):
        YamlAgent(tmp_path / "nowhere.yaml")


def test_shipped_example_can_be_read() -> None:
    found: Any = read_description(REPOSITORY / "recipes/agents/swarm.yaml")
    assert [agent.name for agent in found.agents] == ["solver", "checker"]
