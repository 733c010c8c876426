"""What the account of a run says of rewards: parts, episodes without a score, doubts, and how long episodes become."""

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aworld_train.adapter.base import Checkpoint
from aworld_train.adapter.verl.framework import VerlFramework
from aworld_train.episode.figures import figures_of
from aworld_train.training import step_rows
from aworld_train.training.alarms import Alarm
from aworld_train.training.episode_counts import EpisodeCounts
from aworld_train.training.run_files import LOCK
from aworld_train.training.run_folder import RunFolder
from aworld_train.training.run_metrics import METRICS_LOG, RunMetrics
from aworld_train.training.step_rows import StepRows
from aworld_train.training.summary import RunSummary, Validation

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
        made.add(figures_of(line))
    return made


@pytest.fixture
def account(tmp_path: Path) -> RunMetrics:
    (tmp_path / "traces").mkdir()
    folder = RunFolder(tmp_path, VerlFramework(), (tmp_path / LOCK).open("a"))
    return RunMetrics(folder, RunSummary("r"), folder.path / "verl.jsonl", 0)


def refreshed(account: RunMetrics, *lines: dict[str, Any]) -> dict[int, dict[str, Any]]:
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


def test_a_row_gets_the_episodes_that_end_after_its_step_and_is_judged_when_it_is_whole(
    account: RunMetrics,
) -> None:
    log = account.folder.path / "verl.jsonl"
    record = RunMetrics(account.folder, RunSummary("r", steps_planned=9), log, 0, ahead=2)
    quick = [scored(step, 0.0, outcome="format") for step in (1, 2, 3)]
    assert [row["reward"] for row in refreshed(record, *quick).values()] == [0.0] * 3
    assert record.alarms.alarms == []
    late = [scored(step, 1.0, outcome="answered") for step in (1, 2, 3)]
    rows = refreshed(record, *late, scored(4, 0.0, outcome="format"))
    assert [row["reward"] for row in rows.values()] == [0.5, 0.5, 0.5, 0.0]
    assert [row["episodes"] for row in rows.values()] == [2, 2, 2, 1]
    assert record.alarms.alarms == [] and record.summary.rewards == [0.5, 0.5, 0.5, 0.0]
    with account.folder.episodes.open("a") as file:
        file.write(json.dumps(scored(1, 1.0)) + "\n")
    rows = refreshed(record, scored(5, 0.0))
    assert (rows[1]["reward"], record.summary.episodes) == (0.5, 9), "later than its step may be changed"


def test_every_figure_of_an_episode_is_counted_and_what_it_lacks_is_not() -> None:
    lost = {"outcome": "environment", "cause": "gone"}
    full: dict[str, Any] = {
        "index": 4,
        "tool_calls": 2,
        "tool_errors": 1,
        "tool_seconds": 1.5,
        "branches": {"new": 2},
    }
    full |= {
        "rows": 3,
        "cause": "late",
        "format_misses": {"schema": 1},
        "undelivered": 2,
        "parts": {"a": 0.5},
    }
    found = tally(
        scored(**full, suspicions=["x"]),
        scored(reward=0.5, index=4, tool_calls=0, scores={}),
        unscored(parts={"a": 0.25}, branches={"new": 1, "cut": 1}),
        {"outcome": "timeout"},
        {**lost, "retried": True, "tool_calls": 5},
        lost,
    )
    assert found == EpisodeCounts(
        episodes=5,
        scored=2,
        correct=1.5,
        correct_with_tool=1.0,
        totals=Counter(
            tool_calls=3,
            tool_errors=1,
            tool_seconds=1.5,
            rows=5,
            undelivered=2,
            reward=1.5,
            response_tokens=60,
            turns=0,
        ),
        kinds=Counter({("branches", "new"): 3, ("branches", "cut"): 1, ("format_misses", "schema"): 1}),
        environment_losses=2,
        row_tokens=120,
        unique_tokens=120,
        outcomes=Counter(answered=3, timeout=1, environment=1),
        causes=Counter({"no verdict": 1, "gone": 2}),  # not that of an episode that was trained on
        outcome_causes=Counter({"answered: late": 1, "answered: no verdict": 1, "environment: gone": 1}),
        sampled_tokens=60,
        sampled_episodes=3,
        unscored=Counter({"llm_judge: abstained": 1}),
        suspicions=Counter(x=1),
        parts=Counter({"a": 0.75}),
        part_counts=Counter(a=2),
        rewards={(4, ""): {1.0, 0.5}},
        compared=Counter({4: 2}),
        played=Counter({4: 2, -1: 3}),
        dropped=Counter({-1: 1}),
    )
    assert tally(scored()).rewards == {(-1, ""): {1.0}}, "of a task without a number"
    assert (found.sampled_per_episode, tally().sampled_per_episode) == (20.0, None)


@pytest.mark.parametrize(
    ("rewards", "scores", "varied"),
    [
        ((0.5, 0.5), ({}, {}), 0),
        ((0.5, 0.75), ({}, {}), 1),
        ((0.5, 0.5), ({"score/first": 0.0}, {"score/first": 1.0}), 1),
        # The second agent shares the episode's reward, which differs.
        ((0.5, 0.75), ({"score/first": 1.0}, {"score/first": 1.0}), 1),
        # Nobody's reward is the episode's.
        ((0.5, 0.75), ({"score/first": 1.0, "score/second": 0.0},) * 2, 0),
        # Another agent's is no agent's in these episodes.
        ((0.5, 0.5), ({"score/third": 0.0}, {"score/third": 1.0}), 0),
    ],
)
def test_tasks_vary_in_the_rewards_that_are_compared(
    rewards: tuple[float, ...], scores: tuple[dict[str, float], ...], varied: int
) -> None:
    found = tally(
        *(
            scored(reward=reward, index=3, agents={"first": 2, "second": 1}) | {"scores": each}
            for reward, each in zip(rewards, scores, strict=True)
        ),
        scored(index=4),
    )
    assert (found.compared_tasks, found.varied_tasks) == (1, varied)


def test_the_figures_of_a_step_are_means_over_episodes_however_many_rows_they_have(
    account: RunMetrics,
) -> None:
    long = {"rows": 5, "response_tokens": 90, "turns": 5}
    row = refreshed(account, scored(reward=0.0, **long), scored(turns=1), unscored(turns=9))[1]
    assert (row["reward"], row["response_tokens"], row["turns"]) == (0.5, 60.0, 3.0)


def test_format_misses_and_lost_answers_are_in_their_step(account: RunMetrics) -> None:
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


def test_a_step_s_row_and_the_summary_say_how_it_was_scored(account: RunMetrics) -> None:
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


def test_length_drift_is_a_multiple_of_the_first_step_s_lengths(account: RunMetrics) -> None:
    rows = refreshed(account, scored(), scored(sampled_tokens=40), scored(step=2, sampled_tokens=60))
    assert (rows[1]["length_drift"], rows[2]["length_drift"]) == (1.0, 2.0)


def test_episodes_that_were_lost_make_the_others_no_shorter(account: RunMetrics) -> None:
    lost = {"step": 1, "validate": False, "outcome": "environment", "cause": "gone"}
    rows = refreshed(account, scored(), lost, lost, scored(step=2))
    assert rows[2]["length_drift"] == 1.0


def test_where_nothing_was_sampled_there_is_no_drift(account: RunMetrics) -> None:
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


# Steps and the summary


def counts(episodes: int = 1, **causes: int) -> EpisodeCounts:
    return EpisodeCounts(episodes, causes=Counter(causes))


LOSS, VALIDATED = {"loss": 0.1}, {"loss": 0.1, "val_accuracy": 0.5}


@pytest.mark.parametrize(
    ("rows", "training", "validation", "phase", "step", "episodes"),
    [
        ({}, {}, {}, "starting", 0, 0),
        ({}, {}, {0: 3}, "validation", 0, 3),
        ({0: {"val_accuracy": 0.5}}, {}, {0: 3}, "training", 1, 0),
        ({0: {}}, {1: 2}, {0: 3}, "training", 1, 2),
        ({0: {}}, {1: 2}, {0: 3, 1: 4}, "validation", 1, 4),
        ({1: LOSS}, {1: 2}, {1: 4}, "validation", 1, 4),
        ({1: VALIDATED}, {1: 2}, {1: 4}, "training", 2, 0),
        ({1: LOSS}, {1: 2}, {}, "training", 2, 0),
        ({1: LOSS}, {1: 2, 2: 5}, {}, "training", 2, 5),
        ({3: LOSS}, {3: 5}, {}, "training", 3, 5),
        ({3: LOSS}, {3: 5}, {3: 1}, "validation", 3, 1),
        ({3: VALIDATED}, {3: 5}, {3: 4}, "training", 3, 5),
    ],
)
def test_the_phase_follows_what_was_played_and_what_was_reported(
    account: RunMetrics,
    rows: dict[int, dict[str, Any]],
    training: dict[int, int],
    validation: dict[int, int],
    phase: str,
    step: int,
    episodes: int,
) -> None:
    account.summary.steps_planned = 3
    account.rows.rows = rows
    account.rows.last_trained = max((step for step, row in rows.items() if "loss" in row), default=0)
    account.training.update({step: counts(many) for step, many in training.items()})
    account.validation.update({step: counts(many) for step, many in validation.items()})
    assert account.current() == (phase, step, counts(episodes))


def test_earlier_steps_are_one_sum_and_only_new_rows_are_written(
    account: RunMetrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = 40
    refreshed(account, scored(1, 0.0, sampled_tokens=40), unscored(1, index=7))
    whole_files: list[Path] = []
    monkeypatch.setattr(step_rows, "write_text", lambda path, text: whole_files.append(path))
    for step in range(2, steps + 1):
        rows = refreshed(account, scored(step), unscored(step, index=7), scored(step, validate=True))
    assert (list(account.training), whole_files, list(rows)) == ([steps], [], list(range(1, steps + 1)))
    summary = account.summary
    assert (summary.episodes, summary.trained_episodes, summary.tool_calls) == (
        2 * steps,
        steps,
        3 * steps - 1,
    )
    assert (summary.dropped, summary.outcomes) == ({"7": steps}, {"answered": 2 * steps})
    assert summary.unscored == {"llm_judge: abstained": steps}
    assert rows[steps]["length_drift"] == pytest.approx(20 / 30)
    assert (summary.reward, summary.rewards) == (1.0, [0.0] + [1.0] * 39)


def test_a_row_that_is_reported_again_is_written_at_its_place(account: RunMetrics) -> None:
    for step in (1, 2, 3):
        refreshed(account, scored(step))
    with (account.folder.path / "verl.jsonl").open("a") as file:
        file.write(json.dumps({"step": 2, "data": {"actor/loss": 0.2}}) + "\n")
    account.refresh(1.0)
    found = [json.loads(line) for line in account.folder.metrics.read_text().splitlines()]
    assert [(row["step"], row["loss"]) for row in found] == [(1, 0.1), (2, 0.2), (3, 0.1)]
    assert list(refreshed(account, scored(4))) == [1, 2, 3, 4]


def test_a_row_that_a_full_disk_cut_off_is_written_whole_with_the_next(
    account: RunMetrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    refreshed(account, scored(1))
    line = StepRows._line
    monkeypatch.setattr(StepRows, "_line", lambda rows, step: (_ for _ in ()).throw(OSError(28, "full")))
    with pytest.raises(OSError, match="full"):
        refreshed(account, scored(2))
    monkeypatch.setattr(StepRows, "_line", line)
    with account.folder.metrics.open("a") as file:
        file.write('{"step": 2, "lo')
    assert list(refreshed(account, scored(3))) == [1, 2, 3]


def test_endpoints_that_refuse_five_episodes_in_a_row_end_the_run_and_not_the_next(
    account: RunMetrics,
) -> None:
    refused = unscored(refusal="The judges refuse all requests: HTTP 401")
    refreshed(account, *[refused] * 4, scored(), *[refused] * 4)
    assert account.reason_to_stop is None
    refreshed(account, {**refused, "step": 2})
    assert account.reason_to_stop == (
        "The judges refuse all requests: HTTP 401 (every such episode would be dropped, so the run was ended)."
    )
    again = RunMetrics(account.folder, RunSummary("r"), account.folder.path / "verl.jsonl", 2)
    again.refresh(1.0)
    assert again.reason_to_stop is None


def test_the_worst_cause_is_that_of_the_last_step_and_validation(account: RunMetrics) -> None:
    assert account.worst_cause() is None
    account.training.update({1: counts(early=5), 2: counts(late=2, both=1)})
    assert account.worst_cause() == "late"
    account.validation.update({0: counts(first=9), 1: counts(both=2)})
    assert account.worst_cause() == "both"


def test_a_step_s_row_has_its_episodes_and_its_validation(account: RunMetrics) -> None:
    lines = [
        scored(tool_calls=3, tool_errors=1, branches={"new": 1}, unique_tokens=20, undelivered=1),
        unscored(unique_tokens=20),
        scored(validate=True, reward=0.25, parts={"a": 0.5}, format_misses={"schema": 1}),
        unscored(validate=True),
    ]
    with account.folder.episodes.open("w") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
    assert account.refresh(1.0)
    assert not (account.folder.path / "summary.json").exists()
    reports = account.folder.path / "verl.jsonl"
    reports.write_text('{"step": 1, "data": {"actor/loss": 0.5, "val-core/x/acc/mean@1": 0.5}}\n')
    assert account.refresh(2.0) and not account.refresh(3.0)
    row = json.loads(account.folder.metrics.read_text())
    assert (
        row.items()
        >= {
            "step": 1,
            "episodes": 2,
            "tool_calls": 4,
            "tool_errors": 1,
            "outcomes": {"answered": 2},
            "rows": 2,
            "branches": {"new": 1},
            "format_misses": {},
            "undelivered": 1,
            "unique_tokens_share": 0.5,
            "reward_parts": {},
            "unscored": {"llm_judge: abstained": 1},
            "suspicions": {},
            "length_drift": 1.0,
            "val_accuracy": 0.25,
            "val_n": 1,
            "val_errors": 1,
            "val_format_misses": {"schema": 1},
            "val_reward_parts": {"a": 0.5},
        }.items()
    )
    summary = json.loads((account.folder.path / "summary.json").read_text())
    assert summary == {**account.summary.to_json(), "seconds": 2.0}


def test_a_step_without_episodes_or_whose_validation_goes_on_has_its_reports_alone(
    account: RunMetrics,
) -> None:
    rows = refreshed(account, scored(step=1), scored(step=2, validate=True), unscored(step=3, rows=0))
    assert "episodes" in rows[1] and "unique_tokens_share" in rows[1]
    assert not {"episodes", "val_accuracy"} & rows[2].keys()
    assert (rows[3]["episodes"], rows[3]["unique_tokens_share"]) == (1, None)


def test_the_summary_is_that_of_all_attempts(account: RunMetrics, monkeypatch: pytest.MonkeyPatch) -> None:
    account.summary.seconds = 10.04
    record = RunMetrics(account.folder, account.summary, account.folder.path / "verl.jsonl", 3)
    lost = {"step": 4, "validate": False, "outcome": "environment", "cause": "gone"}
    with record.folder.episodes.open("w") as file:
        for line in (
            *(scored(step=0, validate=True, reward=reward, tool_errors=1) for reward in (1.0, 0.0, 0.0)),
            *(scored(step=4, suspicions=["x"]), unscored(step=4, tool_errors=2), lost),
            scored(step=5, validate=True, tool_calls=0),
            scored(step=5, validate=True),
            unscored(step=5, validate=True),
        ):
            file.write(json.dumps(line) + "\n")
    record.refresh(1.23)
    assert record.summary.steps_done == 3, "from which this attempt resumed"
    monkeypatch.setattr(record.folder, "last_checkpoint", lambda: Checkpoint(4, Path("/model")))
    record.refresh(1.23)
    assert (record.summary.steps_done, record.summary.checkpoint) == (4, "/model")
    data: dict[str, Any] = {"actor/loss": 0.1, "val-core/x/acc/mean@1": 0.5}
    reports = record.folder.path / "verl.jsonl"
    reports.write_text("".join(json.dumps({"step": step, "data": data}) + "\n" for step in (0, 5)))
    record.refresh(1.23)
    assert record.summary.to_json() == {
        **RunSummary("r").to_json(),
        "steps_done": 5,
        "loss": 0.1,
        "episodes": 3,
        "trained_episodes": 1,
        "tool_calls": 7,
        "tool_errors": 5,
        "environment_losses": 1,
        "outcomes": {"answered": 2, "environment": 1},
        "causes": {"answered: no verdict": 1, "environment: gone": 1},
        "dropped": {"-1": 1},
        "unscored": {"llm_judge: abstained": 1},
        "suspicions": {"x": 1},
        "val": {
            "before": {"accuracy": 0.333333, "n": 3, "errors": 0},
            "after": {"accuracy": 1.0, "n": 2, "errors": 1},
        },
        "correct_with_tool": 0.5,
        "checkpoint": "/model",
        "seconds": 11.3,
    }


def test_a_validation_without_scores_has_no_accuracy(account: RunMetrics) -> None:
    refreshed(account, unscored(step=0, validate=True))
    assert account.summary.val == {"before": Validation(None, 0, 1), "after": Validation()}


def test_supervised_training_has_losses_before_and_after(account: RunMetrics) -> None:
    reports = [(0, {"val/loss": 2.0}), (1, {"train/loss": 1.5}), (2, {"train/loss": 1.0, "val/loss": 1.25})]
    account.summary.steps_planned = 3
    for step, data in reports:
        with (account.folder.path / "verl.jsonl").open("a") as file:
            file.write(json.dumps({"step": step, "data": data}) + "\n")
        account.refresh(1.0)
    rows = [json.loads(line) for line in account.folder.metrics.read_text().splitlines()]
    assert [(row["step"], row.get("loss"), row.get("val_loss")) for row in rows] == [
        (0, None, 2.0),
        (1, 1.5, None),
        (2, 1.0, 1.25),
    ]
    summary = account.summary
    assert (summary.steps_done, summary.loss) == (2, 1.0)
    assert summary.val_loss == {"before": 2.0, "after": 1.25}
    assert account.qualities == {0: -2.0, 2: -1.25}
    assert account.current()[:2] == ("training", 3)


def test_a_step_that_was_reported_and_not_read_before_a_kill_is_taken_up(account: RunMetrics) -> None:
    """One whose checkpoint is whole; of steps after it nothing is, for they are trained again."""
    folder = account.folder
    reports = [{"step": step, "data": {"train/loss": 3.0 - step}} for step in (1, 2, 3)]
    logs = [folder.path / f"verl{METRICS_LOG}{number}.jsonl" for number in (1, 2)]
    logs[0].write_text("".join(json.dumps(report) + "\n" for report in reports))
    folder.metrics.write_text(json.dumps({"step": 1, "loss": 2.0, "verl": {}}) + "\n")
    resumed = RunMetrics(folder, RunSummary("r", steps_planned=3), logs[1], 2)
    assert not resumed.validates_first, "the metrics of the checkpoint's step are there"
    logs[1].write_text(json.dumps({"step": 3, "data": {"train/loss": 0.5}}) + "\n")
    resumed.refresh(1.0)
    rows = [json.loads(line) for line in folder.metrics.read_text().splitlines()]
    assert [(row["step"], row["loss"]) for row in rows] == [(1, 2.0), (2, 1.0), (3, 0.5)]
    logs[0].write_text("")
    folder.metrics.unlink()
    assert RunMetrics(folder, RunSummary("r", steps_planned=3), logs[1], 2).validates_first


def test_each_trained_step_is_looked_at_once_for_alarms(account: RunMetrics) -> None:
    class Watch:
        def observe(self, step: int, row: dict[str, Any], episodes: EpisodeCounts) -> list[Alarm]:
            seen.append((step, row["loss"], episodes.episodes))
            return [Alarm(step, "entropy", "text")] if step == 4 else []

    seen: list[tuple[int, float, int]] = []
    record = RunMetrics(account.folder, account.summary, account.folder.path / "verl.jsonl", 2)
    record.alarms = Watch()  # type: ignore[assignment]
    refreshed(record, scored(step=1), scored(step=2), scored(step=3))
    refreshed(record, scored(step=4), scored(step=6))
    assert seen == [(3, 0.1, 1), (4, 0.1, 1), (6, 0.1, 1)]
    assert record.summary.alarms == [{"step": 4, "kind": "entropy", "text": "text"}]


# What a resumed run takes up


def taken_up(account: RunMetrics, content: bytes, step: int) -> RunMetrics:
    account.folder.episodes.write_bytes(content)
    return RunMetrics(account.folder, RunSummary("r"), account.folder.path / "verl.jsonl", step)


def lines(*steps: int) -> bytes:
    return b"".join(json.dumps(scored(step)).encode() + b"\n" for step in steps)


def test_a_line_that_was_cut_off_does_not_take_the_next_one_with_it(account: RunMetrics) -> None:
    resumed = taken_up(account, lines(1, 2) + lines(2)[:25], 2)
    assert account.folder.episodes.read_bytes() == lines(1, 2)
    assert account.folder.superseded.read_bytes() == lines(2)[:25] + b"\n"
    assert resumed.notes[0] == "episodes.jsonl had lines that were cut off when they were written: 1."
    refreshed(resumed, scored(3))
    assert resumed.summary.episodes == 3


def test_a_line_that_was_cut_off_in_the_middle_of_the_file_is_set_aside(account: RunMetrics) -> None:
    resumed = taken_up(account, lines(1) + lines(1)[:9] + lines(1, 2), 2)
    assert resumed.notes[0].endswith(": 1.")
    assert account.folder.episodes.read_bytes() == lines(1, 2)


@pytest.mark.parametrize(("step", "remaining"), [(0, b""), (1, lines(0, 1)), (2, lines(0, 1, 2))])
def test_episodes_that_are_played_again_are_set_aside(
    account: RunMetrics, step: int, remaining: bytes
) -> None:
    resumed = taken_up(account, lines(0, 1, 2, 3), step)
    assert account.folder.episodes.read_bytes() == remaining
    assert remaining + account.folder.superseded.read_bytes() == lines(0, 1, 2, 3)
    assert account.folder.superseded.stat().st_mode & 0o777 == 0o600
    assert resumed.notes[1:] == [f"What was set aside is in {account.folder.superseded}."]
    count = 4 - len(remaining.splitlines())
    assert resumed.notes[0] == f"Episodes after the checkpoint of step {step} that are played again: {count}."


@pytest.mark.parametrize("is_validated", [True, False])
def test_the_validation_of_the_checkpoint_s_step_is_played_again_where_it_is_not_done(
    account: RunMetrics, is_validated: bool
) -> None:
    rows = '{"step": 2, "val_accuracy": 0.1}\n{"step": 3, "loss": 0.1}\n'
    account.folder.metrics.write_text(rows * is_validated)
    content = [scored(0, validate=True), scored(1, validate=True), scored(2), scored(2, validate=True)]
    content.append(scored(3, query="é"))
    encoded = [json.dumps(line, ensure_ascii=False).encode() + b"\n" for line in content]
    taken_up(account, b"".join(encoded), 2)
    done = 4 if is_validated else 3
    assert account.folder.episodes.read_bytes() == b"".join(encoded[:done])
    assert account.folder.superseded.read_bytes() == b"".join(encoded[done:])
    steps = [json.loads(line)["step"] for line in account.folder.metrics.read_text().splitlines()]
    assert steps == [2] * is_validated


def test_what_is_set_aside_is_on_the_disk_before_it_is_taken_out(
    account: RunMetrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_disk: list[tuple[bytes, bytes]] = []
    folder = account.folder
    read = lambda _: on_disk.append((folder.superseded.read_bytes(), folder.episodes.read_bytes()))  # noqa: E731
    monkeypatch.setattr(os, "fsync", read)
    folder.superseded.write_bytes(b"earlier\n")
    taken_up(account, lines(1, 2) + b"{", 1)
    # The first was the file of the rows.
    assert on_disk[1] == (b"earlier\n" + lines(2) + b"{\n", lines(1, 2) + b"{")


def test_a_line_of_no_step_is_set_aside(account: RunMetrics) -> None:
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
    account: RunMetrics, step: int, row: dict[str, Any], validates: bool
) -> None:
    """The run has two steps and resumes from the checkpoint of ``step``."""
    account.folder.metrics.write_text(json.dumps(row) + "\n")
    summary = RunSummary("r", steps_planned=2)
    resumed = RunMetrics(account.folder, summary, account.folder.path / "verl.jsonl", step)
    assert resumed.validates_first is validates


def test_a_file_that_is_whole_is_left_alone(account: RunMetrics) -> None:
    resumed = taken_up(account, lines(1, 2), 2)
    assert resumed.notes == [] and not account.folder.superseded.exists()
