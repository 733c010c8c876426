"""What the account of a run says of rewards: parts, episodes without a score, doubts, and how long episodes become."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aworld_train.adapter.verl.framework import VerlFramework
from aworld_train.training.run_folder import open_run_folder
from aworld_train.training.run_record import EpisodeCounts, RunRecord
from aworld_train.training.summary import RunSummary

PLAYED = {
    "validate": False,
    "outcome": "answered",
    "treatment": "trained",
    "tool_calls": 1,
    "scorer": "composite",
    "scoring": "scored",
    "rows": 1,
    "prompt_tokens": 10,
    "response_tokens": 30,
    "unique_tokens": 40,
    "sampled_tokens": 20,
}


def scored(step: int = 1, reward: float = 1.0, **more: Any) -> dict[str, Any]:
    return {**PLAYED, "step": step, "reward": reward, "scores": {"acc": reward}, **more}


def unscored(step: int = 1, **more: Any) -> dict[str, Any]:
    why = {"scoring": "abstained", "scorer": "llm_judge", "treatment": "dropped", "cause": "no verdict"}
    return {**PLAYED, "step": step, **why, **more}


def tally(*lines: dict[str, Any]) -> EpisodeCounts:
    made = EpisodeCounts()
    for line in lines:
        made.add(line)
    return made


@pytest.fixture
def account(tmp_path: Path) -> RunRecord:
    (tmp_path / "rows").write_bytes(b"rows")
    folder = open_run_folder(
        tmp_path / "run", VerlFramework(), {"name": "r"}, [tmp_path / "rows"], resume=False
    )
    return RunRecord(folder, RunSummary("r"), folder.path / "verl.jsonl", 0)


def refreshed(account: RunRecord, *lines: dict[str, Any]) -> dict[int, dict[str, Any]]:
    """The rows by step, once these episodes were played and their steps trained on."""
    account.folder.episodes.parent.mkdir(parents=True, exist_ok=True)
    with account.folder.episodes.open("a") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
    with (account.folder.path / "verl.jsonl").open("a") as file:
        for step in sorted({line["step"] for line in lines}):
            file.write(json.dumps({"step": step, "data": {"actor/loss": 0.1}}) + "\n")
    account.refresh(1.0)
    rows = [json.loads(line) for line in account.folder.metrics.read_text().splitlines()]
    return {row["step"]: row for row in rows}


def test_format_misses_and_lost_answers_are_in_their_step(account: RunRecord) -> None:
    rows = refreshed(
        account,
        scored(format_misses={"schema": 2}, undelivered=1),
        scored(format_misses={"schema": 1, "no_call": 1}),
        unscored(step=2),
    )
    assert [(row["format_misses"], row["undelivered"]) for row in rows.values()] == [
        ({"schema": 3, "no_call": 1}, 1),
        ({}, 0),
    ]


def test_parts_are_means_over_the_episodes_that_have_them() -> None:
    found = tally(
        scored(parts={"correct": 1.0, "format": 0.5}),
        scored(parts={"correct": 0.0}),
        scored(parts={"penalty": -0.25}),
        scored(),
    )
    assert found.part_means == {"correct": 0.5, "format": 0.5, "penalty": -0.25}


def test_what_a_judge_was_paid_for_no_verdict_counts_too() -> None:
    found = tally(scored(parts={"judge_cost": 0.1}), unscored(parts={"judge_cost": 0.3}))
    assert found.part_means == {"judge_cost": pytest.approx(0.2)}


def test_an_episode_without_a_score_is_counted_by_scorer_and_why_and_is_neither_right_nor_wrong() -> None:
    found = tally(
        scored(), unscored(), unscored(), unscored(scorer="/x/own.py:judge", scoring="timeout", cause="slow")
    )
    assert (found.episodes, found.scored, found.correct) == (4, 1, 1.0)
    assert found.unscored == {"llm_judge: abstained": 2, "/x/own.py:judge: timeout": 1}
    assert found.causes == {"no verdict": 2, "slow": 1}


def test_an_episode_that_never_came_to_be_scored_is_not_one_without_a_score() -> None:
    lost = {"step": 1, "validate": False, "outcome": "environment", "treatment": "dropped", "cause": "gone"}
    found = tally(lost, {**lost, "retried": True})
    assert not found.unscored
    assert (found.episodes, found.environment_losses) == (1, 2)


def test_doubts_are_shares_of_all_episodes() -> None:
    found = tally(
        scored(suspicions=["right_without_tool", "repeated_text"]),
        scored(suspicions=["right_without_tool"]),
        scored(),
        unscored(),
    )
    assert found.suspicion_shares == {"repeated_text": 0.25, "right_without_tool": 0.5}
    assert tally().suspicion_shares == tally().part_means == {}


def test_a_step_s_row_and_the_summary_say_how_it_was_scored(account: RunRecord) -> None:
    lines = [scored(parts={"correct": 1.0}, suspicions=["repeated_text"], rows=3), unscored()]
    row = refreshed(account, *lines, unscored(step=2), scored(step=2, validate=True, suspicions=["x"]))[1]
    assert row["reward_parts"] == {"correct": 1.0}
    assert row["rows"] == 4
    assert row["unscored"] == {"llm_judge: abstained": 1}
    assert row["suspicions"] == {"repeated_text": 0.5}
    assert account.summary.unscored == {"llm_judge: abstained": 2}
    assert account.summary.suspicions == {"repeated_text": 1}  # of training alone
    assert (account.summary.episodes, account.summary.trained_episodes) == (3, 1)


def test_tasks_of_which_rewards_can_be_compared_and_those_of_which_they_differ() -> None:
    found = tally(
        *(scored(index=index, reward=reward) for index, reward in [(0, 1.0), (0, 0.0), (1, 1.0), (1, 1.0)]),
        scored(index=2),
        unscored(index=2),
    )
    assert (found.compared_tasks, found.varied_tasks) == (2, 1)


def test_length_drift_is_a_multiple_of_the_first_step_s_lengths(account: RunRecord) -> None:
    rows = refreshed(account, scored(), scored(sampled_tokens=40), scored(step=2, sampled_tokens=60))
    assert (rows[1]["length_drift"], rows[2]["length_drift"]) == (1.0, 2.0)


def test_episodes_that_were_lost_make_the_others_no_shorter(account: RunRecord) -> None:
    lost = {"step": 1, "validate": False, "outcome": "environment", "cause": "gone"}
    rows = refreshed(account, scored(), lost, lost, scored(step=2))
    assert rows[2]["length_drift"] == 1.0


def test_where_nothing_was_sampled_there_is_no_drift(account: RunRecord) -> None:
    lost = {"validate": False, "outcome": "environment", "cause": "gone"}
    rows = refreshed(account, {**lost, "step": 1}, scored(step=2))
    assert rows[1]["length_drift"] is rows[2]["length_drift"] is None
    rows = refreshed(account, scored(step=3, sampled_tokens=0))
    assert rows[3]["length_drift"] is None


@given(
    st.lists(
        st.fixed_dictionaries(
            {"reward": st.none() | st.floats(0, 1)},
            optional={"parts": st.dictionaries(st.sampled_from("abc"), st.floats(-1, 1))},
        )
    )
)
def test_a_mean_lies_within_what_it_is_the_mean_of(lines: list[dict[str, Any]]) -> None:
    found = tally(*(scored(**line) if line["reward"] is not None else unscored(**line) for line in lines))
    assert found.scored + sum(found.unscored.values()) == found.episodes == len(lines)
    for name, mean in found.part_means.items():
        values = [line["parts"][name] for line in lines if name in line.get("parts", {})]
        assert min(values) - 1e-9 <= mean <= max(values) + 1e-9


# What a resumed run takes up


def taken_up(account: RunRecord, content: bytes, step: int) -> RunRecord:
    account.folder.episodes.write_bytes(content)
    return RunRecord(account.folder, RunSummary("r"), account.folder.path / "verl.jsonl", step)


def lines(*steps: int) -> bytes:
    return b"".join(json.dumps(scored(step)).encode() + b"\n" for step in steps)


def test_a_line_that_was_cut_off_does_not_take_the_next_one_with_it(account: RunRecord) -> None:
    resumed = taken_up(account, lines(1, 2) + lines(2)[:25], 2)
    assert account.folder.episodes.read_bytes() == lines(1, 2)
    assert account.folder.superseded.read_bytes() == lines(2)[:25] + b"\n"
    assert resumed.notes[0] == "episodes.jsonl had lines that were cut off when they were written: 1."
    refreshed(resumed, scored(3))
    assert resumed.summary.episodes == 3


def test_a_line_that_was_cut_off_in_the_middle_of_the_file_is_set_aside(account: RunRecord) -> None:
    resumed = taken_up(account, lines(1) + lines(1)[:9] + lines(1, 2), 2)
    assert resumed.notes[0].endswith(": 1.")
    assert account.folder.episodes.read_bytes() == lines(1, 2)


@pytest.mark.parametrize(("step", "remaining"), [(0, b""), (1, lines(1)), (2, lines(1, 2))])
def test_episodes_that_are_played_again_are_set_aside(
    account: RunRecord, step: int, remaining: bytes
) -> None:
    resumed = taken_up(account, lines(1, 2, 3), step)
    assert account.folder.episodes.read_bytes() == remaining
    assert remaining + account.folder.superseded.read_bytes() == lines(1, 2, 3)
    assert account.folder.superseded.stat().st_mode & 0o777 == 0o600
    count = 3 - len(remaining.splitlines())
    assert resumed.notes[0] == f"Episodes after the checkpoint of step {step} that are played again: {count}."


def test_a_line_of_no_step_is_set_aside(account: RunRecord) -> None:
    taken_up(account, b'{"outcome": "answered"}\n' + lines(1), 1)
    assert account.folder.episodes.read_bytes() == lines(1)


@pytest.mark.parametrize(
    ("step", "row", "validates"),
    [
        (0, {"step": 0}, True),
        (1, {"step": 1, "loss": 0.1}, False),
        (1, {"step": 0}, True),
        (2, {"step": 2, "loss": 0.1}, True),
        (2, {"step": 2, "loss": 0.1, "val_accuracy": 0.5}, False),
    ],
)
def test_the_model_is_measured_at_the_start_and_where_its_measurement_is_missing(
    account: RunRecord, step: int, row: dict[str, Any], validates: bool
) -> None:
    """The run has two steps and resumes from the checkpoint of ``step``."""
    account.folder.metrics.write_text(json.dumps(row) + "\n")
    summary = RunSummary("r", steps_planned=2)
    resumed = RunRecord(account.folder, summary, account.folder.path / "verl.jsonl", step)
    assert resumed.validates_first is validates


def test_a_file_that_is_whole_is_left_alone(account: RunRecord) -> None:
    resumed = taken_up(account, lines(1, 2), 2)
    assert resumed.notes == [] and not account.folder.superseded.exists()
