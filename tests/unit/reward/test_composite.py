"""`composite`: parts between 0 and 1, weighted, gated, and none where nobody knows what is correct."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aworld_train.episode.score import ScoreOutcome, ScoreResult
from aworld_train.errors import RewardError
from aworld_train.reward.composite import PARTS, check_composite
from aworld_train.reward.scoring import score_now
from aworld_train.reward.settings import CompositeSettings, RewardSettings

RIGHT, WRONG = "<answer>7</answer>", "<answer>8</answer>"
ALL = dict.fromkeys(PARTS, 0.2)


def ask(text: str, episode: dict[str, Any] | None = None, **composite: Any) -> ScoreResult:
    reward_settings = RewardSettings(composite=CompositeSettings(**composite))
    return score_now(text, ground_truth="7", scorer="composite", settings=reward_settings, episode=episode)


def test_the_score_is_the_sum_of_weight_times_part() -> None:
    scored = ask(WRONG, {"tool_call_count": 3, "tool_error_count": 2}, weights=ALL)
    assert scored.parts == {"correct": 0.0, "format": 1.0, "tool_use": 1.0, "length": 1.0, "cost": 1.0}
    assert scored.score == pytest.approx(0.8)
    assert ask(RIGHT, weights={"correct": 0.9, "format": 0.1}).score == pytest.approx(1.0)
    assert ask(RIGHT, {"tool_call_count": 32}, weights={"correct": 1.0, "tool_use": -0.5}).score == 0.5


@pytest.mark.parametrize(
    ("episode", "tool_use", "cost"),
    [
        ({}, 0.0, 1.0),
        ({"tool_call_count": None}, 0.0, 1.0),
        ({"tool_call_count": 2, "tool_error_count": 2}, 0.0, 1.0),
        ({"tool_call_count": 4, "tool_error_count": 3}, 1.0, 1.0),
        ({"tool_call_count": 6}, 1.0, 0.5),
        ({"tool_call_count": 8}, 1.0, 0.0),
        ({"tool_call_count": 80}, 1.0, 0.0),
    ],
)
def test_tools_are_to_be_used_but_not_for_ever(episode: dict[str, Any], tool_use: float, cost: float) -> None:
    parts = ask(RIGHT, episode, max_calls=4).parts
    assert (parts["tool_use"], parts["cost"]) == (tool_use, cost)


def test_length_falls_from_the_most_to_twice_that() -> None:
    lengths = [ask(RIGHT + "x" * more, max_chars=100).parts["length"] for more in (0, 82, 83, 132, 182, 900)]
    assert lengths == pytest.approx([1.0, 1.0, 0.99, 0.5, 0.0, 0.0])


@pytest.mark.parametrize(
    ("text", "is_formed"),
    [
        (RIGHT, True),
        (f"<think>so</think> {RIGHT}", True),
        (f"so</think> {RIGHT}", True),  # the prompt had begun it
        (f"{RIGHT} <answer>", False),
        (f"<answer> {RIGHT}", False),
        (f"{RIGHT}</answer>", False),
        (f"{RIGHT} <think>and", False),
        (f"{RIGHT} <tool_call>", False),
        ("7", False),
    ],
)
def test_format_is_an_answer_and_no_tag_left_open(text: str, is_formed: bool) -> None:
    assert ask(text).parts["format"] == float(is_formed)


def test_a_last_turn_that_cannot_be_read_has_no_format() -> None:
    assert ask(RIGHT, {"outcome": "format"}).parts["format"] == 0.0
    assert ask(RIGHT, {"outcome": "answered"}).parts["format"] == 1.0


def test_a_gate_that_is_shut_makes_it_nothing() -> None:
    scored = ask(RIGHT, weights=ALL, gates=("tool_use", "format"))
    assert scored.score == 0.0
    assert scored.steps[-1] == "the gate tool_use is shut: 0"
    assert ask(RIGHT, {"tool_call_count": 1}, weights=ALL, gates=("tool_use", "format")).score == 1.0


def test_no_answer_has_its_parts_too() -> None:
    scored = ask("seven, I think", weights={"correct": 0.5, "length": 0.5})
    assert (scored.score, scored.outcome) == (0.5, ScoreOutcome.no_answer)
    assert (scored.parts["correct"], scored.parts["format"]) == (0.0, 0.0)


def test_without_a_score_of_correct_there_is_no_score() -> None:
    scored = ask(RIGHT, correct="code_tests", weights=ALL)
    assert (scored.score, scored.outcome) == (None, ScoreOutcome.abstained)
    assert scored.cause is not None and scored.cause.startswith("code_tests has no score (abstained): ")
    assert "correct" not in scored.parts and scored.parts["format"] == 1.0


def test_a_scorer_in_a_worker_process_keeps_its_time_limit(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("import time\ndef stuck(answer, truth): time.sleep(1000)\n")
    correct = f"{tmp_path}/own.py:stuck"
    reward_settings = RewardSettings(timeout=0.5, composite=CompositeSettings(correct=correct))
    scored = score_now("<answer>1</answer>", ground_truth="1", scorer="composite", settings=reward_settings)
    assert scored.outcome == ScoreOutcome.abstained
    assert (
        scored.cause == f"{correct} has no score (timeout): the scorer {correct} took longer than 0.5 seconds"
    )


def test_an_answer_that_the_scorer_fails_on_is_not_correct() -> None:
    reward_settings = RewardSettings(composite=CompositeSettings(correct="math"))
    scored = score_now(
        "<answer>9^{9^9}</answer>", ground_truth=r"\sqrt{2}", scorer="composite", settings=reward_settings
    )
    assert (scored.score, scored.parts["correct"]) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"weights": {"corect": 1.0}},
            "`weights` has 'corect', which is not one of .*Did you mean 'correct'",
        ),
        ({"gates": ("tools_use",)}, "`gates` has 'tools_use', which is not one of .*Did you mean 'tool_use'"),
        ({"weights": {"correct": 0.0}}, "`weights` has no weight but 0"),
        ({"correct": "composite"}, "`correct` cannot be composite itself"),
        ({"correct": "exactly"}, "Unknown scorer 'exactly'. Did you mean 'exact'"),
        ({"max_chars": 0}, "`max_chars` must be at least 1, it is 0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(RewardError, match=message):
        check_composite(CompositeSettings(**changed))
    scored = ask(RIGHT, **changed)
    assert (scored.score, scored.outcome) == (None, ScoreOutcome.error)


@given(
    text=st.text(max_size=300),
    calls=st.integers(0, 100),
    errors=st.integers(0, 100),
    weights=st.dictionaries(st.sampled_from(PARTS), st.floats(0.1, 1), min_size=1),
)
def test_parts_are_between_nothing_and_all(
    text: str, calls: int, errors: int, weights: dict[str, float]
) -> None:
    scored = ask(text, {"tool_call_count": calls, "tool_error_count": errors}, weights=weights)
    assert set(scored.parts) == set(PARTS)
    assert all(0.0 <= part <= 1.0 for part in scored.parts.values())
    assert scored.score is not None and 0.0 <= scored.score <= sum(weights.values()) + 1e-9
