"""The record of an episode: how it ended, and what of a reward function's figures has a place in it."""

import json
import math
from pathlib import Path
from typing import Any, cast

import pytest

from aworld_train.adapter.episodes.record import EpisodeRecord
from aworld_train.adapter.episodes.scoring import EpisodeScore
from aworld_train.recipe.schema import EpisodeUse
from aworld_train.reward.scored import ScoreOutcome, ScoreResult
from aworld_train.rollout.chat_episode import ChatEpisode
from aworld_train.rollout.episode_result import EpisodeResult
from aworld_train.rollout.outcome import Outcome
from aworld_train.rollout.react import ToolCounts
from tests.stored_runs import task_row

ANSWERED = {"outcome": "answered", "treatment": "trained", "cause": None}
RAISED = {"outcome": "infrastructure", "treatment": "dropped", "cause": "RuntimeError: a bug"}


def test_a_number_beyond_64_bits_is_no_figure() -> None:
    record = EpisodeRecord(1, False, 0)
    record.reward(
        1.0,
        {
            "acc": 1.0,
            "nan": math.nan,
            "most": (1 << 63) - 1,
            "pred": 10**30,
            "least": -(10**400),
            "text": "7",
        },
    )
    assert list(record.line["scores"]) == ["acc", "nan", "most"]
    assert record.line["reward"] == 1.0


@pytest.mark.parametrize(
    ("reported", "error", "end"),
    [
        (ANSWERED, None, ANSWERED),
        (ANSWERED, RuntimeError("a bug"), RAISED),
        ({}, RuntimeError("a bug"), RAISED),
        ({}, None, {**RAISED, "cause": "the agent loop reported nothing"}),
    ],
)
def test_an_episode_whose_loop_raised_is_dropped_whatever_was_reported(
    run_dir: Path, reported: dict[str, Any], error: Exception | None, end: dict[str, Any]
) -> None:
    record = EpisodeRecord(1, False, 0)
    record.line |= reported
    record.write(error)
    [line] = (run_dir / "traces" / "episodes.jsonl").read_text().splitlines()
    assert json.loads(line) == {"episode": record.id, "step": 1, "validate": False, "index": 0, **end}
    assert record.is_written


def test_of_an_answer_that_is_right_without_a_tool_a_person_gets_what_to_look_at() -> None:
    record = EpisodeRecord(1, False, 0)
    episode = ChatEpisode(cast(Any, None), cast(Any, None))
    result = EpisodeResult(episode, ToolCounts(), Outcome.answered, "It is 42.")
    record.finish(result, [], EpisodeUse.trained, 0.5)
    task = task_row(0, 6, 7)
    score = EpisodeScore(ScoreResult(1.0, "42", ScoreOutcome.scored, {}, (), None, "number"), 0, 0)
    assert record.score(score, {**task, "raw_prompt": task["prompt"]})
    assert record.line["suspicions"] == ["right_without_tool"]
    assert record.line["look"] == {
        "query": "What is 6 times 7?",
        "said": "It is 42.",
        "extracted": "42",
        "ground_truth": "42",
    }
