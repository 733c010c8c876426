"""What is shown of a run follows from its records: phases, episodes, and the time that is left."""

from pathlib import Path

import pytest

from aworld_train.training.progress import Status, Work
from tests.replayed_run import Replay

BEFORE, STEP_1, STEP_2, VALIDATED, STEP_3, STEP_4, ALL = 8, 24, 40, 48, 64, 80, 88
"""Episodes of the recorded run at the end of each part."""


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.now = 100.0
        monkeypatch.setattr("time.monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def at(replay: Replay, clock: Clock, seconds: float, episodes: int, rows: int) -> Status:
    """The state so many seconds later."""
    clock.now += seconds
    replay.go_on(episodes, rows)
    return replay.status.current()


def test_the_phase_follows_the_episodes_and_the_rows(tmp_path: Path, clock: Clock) -> None:
    replay = Replay(tmp_path)
    phases = [
        (status.phase, status.step, status.episodes, status.outcomes_of)
        for status in (
            at(replay, clock, 1, 0, 0),
            at(replay, clock, 1, 3, 0),
            at(replay, clock, 1, BEFORE, 1),
            at(replay, clock, 1, STEP_1 - 4, 1),
            at(replay, clock, 1, STEP_2, 2),
            at(replay, clock, 1, VALIDATED - 1, 2),
            at(replay, clock, 1, VALIDATED, 3),
        )
    ]
    assert phases == [
        ("starting", 0, 0, ""),
        ("validation", 0, 3, "validation before training"),
        ("training", 1, 0, "validation before training"),
        ("training", 1, 12, "step 1"),
        ("training", 2, 16, "step 2"),
        ("validation", 2, 7, "validation after step 2"),
        ("training", 3, 0, "step 2"),
    ]


def test_the_time_left_is_that_of_the_last_steps_and_validations(tmp_path: Path, clock: Clock) -> None:
    replay = Replay(tmp_path)
    at(replay, clock, 0, 0, 0)
    at(replay, clock, 50, 1, 0)
    assert at(replay, clock, 30, BEFORE, 1).seconds_left is None
    at(replay, clock, 6, STEP_1, 1)
    # Steps 2, 3 and 4 like the first, and the validations after the second and the fourth like the one before.
    assert at(replay, clock, 4, STEP_1, 2).seconds_left == pytest.approx(3 * 10 + 2 * 30)
    assert at(replay, clock, 7, STEP_2, 2).seconds_left == pytest.approx(3 * 10 + 2 * 30 - 7)
    # A step that takes longer than expected takes nothing from those behind it.
    assert at(replay, clock, 500, STEP_2, 2).seconds_left == pytest.approx(2 * 10 + 30)
    status = at(replay, clock, 1, VALIDATED, 3)
    validation = replay.record.rows.rows[2]["val_seconds"]
    assert 0 < validation < 10
    second = 508 - validation
    assert status.seconds_left == pytest.approx(2 * (10 + second) / 2 + validation)
    at(replay, clock, 12, STEP_3, 4)
    assert at(replay, clock, 0, ALL, 5).seconds_left == 0.0


def test_a_run_that_goes_on_counts_what_is_recorded_until_it_has_ended_a_step(
    tmp_path: Path, clock: Clock
) -> None:
    replay = Replay(tmp_path)
    status = at(replay, clock, 5, VALIDATED, 3)
    rows = replay.record.rows.rows
    steps = sorted(rows[step]["seconds"] for step in (1, 2))
    assert status.seconds_left == pytest.approx(2 * sum(steps) / 2 + rows[2]["val_seconds"])


def test_each_end_is_a_milestone_once(tmp_path: Path, clock: Clock) -> None:
    replay = Replay(tmp_path)
    shown: list[tuple[bool, str, int]] = []

    class Recorder:
        def update(self, status: Status, *, milestone: bool) -> None:
            shown.append((milestone, status.phase, status.step))

    for episodes, rows in ((3, 0), (BEFORE, 1), (STEP_1, 1), (STEP_1, 2), (STEP_2, 2)):
        replay.go_on(episodes, rows)
        replay.status.show(Recorder(), Work("gen", 1.0))  # type: ignore[arg-type]
    assert [entry for entry in shown if entry[0]] == [(True, "training", 0), (True, "training", 1)]
    assert [entry for entry in shown if not entry[0]] == [
        (False, "validation", 0),
        (False, "training", 1),
        (False, "training", 1),
        (False, "training", 2),
        (False, "training", 2),
    ]
