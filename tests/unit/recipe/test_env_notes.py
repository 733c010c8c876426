"""``recipe check`` and a run's start say how long episodes wait for a tool worker."""

import pytest

from aworld_train import recipe as recipes
from aworld_train.env import backend
from aworld_train.recipe.env_notes import queue_note

GAIA = "gaia/qwen3-8b-8gpu"


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend.os, "cpu_count", lambda: 16)
    monkeypatch.setattr(
        backend.psutil, "virtual_memory", lambda: type("Memory", (), {"available": 128 << 30})
    )


def note(name: str, *overrides: str, episodes: int | None = None) -> str | None:
    return queue_note(recipes.load(name, overrides), episodes)


def test_the_last_episodes_of_a_step_wait_for_those_before_them() -> None:
    assert note(GAIA) == (
        "128 episodes at a time share 32 tool workers on this machine: the last wait for 3 others, 10800 seconds "
        "at most (agent.episode_timeout)."
    )
    assert "wait for 1 other, " in str(note(GAIA, "env.workers=64"))
    assert "share 20 tool workers" in str(note(GAIA, "env.workers=20"))
    assert "wait for 6 others" in str(note(GAIA, "env.workers=20"))


def test_a_wait_beyond_its_limit_is_said_with_what_to_do() -> None:
    text = str(note(GAIA, "env.queue_timeout=10799"))
    assert "longer than env.queue_timeout (10799)" in text and "env.workers" in text
    assert "longer" not in str(note(GAIA, "env.queue_timeout=10800"))


@pytest.mark.parametrize(
    ("name", "overrides", "episodes"),
    [
        (GAIA, ["env.workers=128"], None),
        (GAIA, [], 32),
        (GAIA, ["env.docker_dir=null", "env.url=http://127.0.0.1:9/mcp"], None),
        (GAIA, ["env.docker_dir=null", "env.backend=none"], None),
        (GAIA, ["env.docker_dir=not-there"], None),
        ("gsm8k-qwen2.5-1.5b-1gpu", [], None),  # one worker serves them all
        (GAIA, ["env.cassette.path=c.jsonl", "env.cassette.mode=replay"], None),
    ],
)
def test_where_nobody_waits_nothing_is_said(name: str, overrides: list[str], episodes: int | None) -> None:
    assert note(name, *overrides, episodes=episodes) is None


@pytest.mark.parametrize("name", ["gaia/qwen3-4b-1gpu", GAIA, "gaia/qwen3-32b-multinode"])
def test_the_ready_recipes_queue_within_their_limit_on_machines_of_their_size(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """16 cores beside one GPU, 96 beside eight, as clouds have them."""
    recipe = recipes.load(name)
    monkeypatch.setattr(backend.os, "cpu_count", lambda: 16 if recipe.cluster.gpus_per_node == 1 else 96)
    assert "longer" not in str(queue_note(recipe))
