"""Single episodes: what is played, scored and recorded of a row outside a training run."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from aworld_train import recipe as recipes
from aworld_train.adapter.base import EpisodeModel
from aworld_train.adapter.episodes.files import episode_files, write_files
from aworld_train.adapter.episodes.paths import EPISODES_FILE
from aworld_train.adapter.episodes.play_single import SingleEpisode, close_store, play_row
from aworld_train.adapter.episodes.reference_agents import OracleAgent
from aworld_train.adapter.episodes.settings import read_settings
from aworld_train.recipe.reward_settings import reward_settings
from aworld_train.store.events import EpisodeBegun
from tests.stored_runs import task_row, written_events

MODEL = cast(EpisodeModel, SimpleNamespace(name="none", tokenizer=None, for_episode=lambda: None))


EVALUATED = {"validate": True, "phase": "eval", "attempt": 1, "key": "task-3.1"}
"""What says that an episode is the second attempt of an evaluation."""


def play(run: Path, row: dict[str, Any], place: dict[str, Any]) -> SingleEpisode:
    """The oracle plays a row; ``place`` says what for."""
    recipe = recipes.load({"name": "a"})
    write_files(run, episode_files(recipe))
    agent = OracleAgent(read_settings(str(run / EPISODES_FILE)), reward_settings(recipe))

    async def played() -> SingleEpisode:
        episode = await play_row(
            run,
            MODEL,
            row,
            {"temperature": 0.0, "top_p": 1.0, "top_k": -1, "seed": 7},
            max_prompt_tokens=100,
            max_response_tokens=100,
            agent=agent,
            **place,
        )
        await close_store(run)
        return episode

    return asyncio.run(played())


def test_an_episode_is_scored_and_recorded_as_the_attempt_that_it_is(run_dir: Path) -> None:
    scored: list[bool] = []

    def note() -> None:
        scored.append(any((run_dir / "traces").iterdir()))

    episode = play(run_dir, task_row(3, 6, 7), {**EVALUATED, "on_played": note})
    assert scored == [False], "told once, before anything is written of it"
    assert episode.score is not None and episode.score.value == episode.figures.reward == 1.0
    assert {
        name: getattr(episode.figures, name) for name in ("step", "validate", "index", "seed", "outcome")
    } == {
        "step": 0,
        "validate": True,
        "index": 3,
        "seed": 7,
        "outcome": "answered",
    }
    assert episode.figures.seconds >= 0
    [begun] = (event for event in written_events(run_dir) if isinstance(event, EpisodeBegun))
    assert (begun.phase, begun.attempt, begun.key) == ("eval", 1, "task-3.1")


@pytest.mark.parametrize(("validate", "phase"), [(False, "train"), (True, "val")])
def test_an_episode_of_a_training_framework_says_its_step(run_dir: Path, validate: bool, phase: str) -> None:
    episode = play(run_dir, task_row(3, 6, 7), {"step": 2, "validate": validate})
    assert (episode.figures.step, episode.figures.validate) == (2, validate)
    [begun] = (event for event in written_events(run_dir) if isinstance(event, EpisodeBegun))
    assert (begun.step, begun.phase, begun.attempt, begun.key) == (2, phase, 0, "")
