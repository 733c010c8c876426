"""What is shown of a run follows from its records: phases, episodes, and the time that is left."""

import json
import time
from pathlib import Path

import pytest

from aworld_train import waits
from aworld_train.training.progress import Status, Work
from aworld_train.training.run_status import trainer_work
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


def test_what_the_trainer_said_in_an_earlier_part_of_the_step_is_not_shown(
    tmp_path: Path, clock: Clock
) -> None:
    replay = Replay(tmp_path)
    shown: list[Status] = []

    class Recorder:
        def update(self, status: Status, *, milestone: bool) -> None:
            shown.append(status)

    def work_after(seconds: float, episodes: int, age: float) -> Work | None:
        clock.now += seconds
        replay.go_on(episodes, 1)
        replay.status.show(Recorder(), Work("gen", 5.0, age))  # type: ignore[arg-type]
        return shown[-1].work

    assert work_after(10, STEP_1 - 1, 1.0) is None
    assert work_after(2, STEP_1 - 1, 1.0) == Work("gen", 5.0, 1.0)
    assert work_after(0.5, STEP_1, 1.5) is None
    assert work_after(0.5, STEP_1, 0.4) is not None


def test_the_trainer_s_work_is_the_innermost_of_its_phases(tmp_path: Path) -> None:
    assert trainer_work(tmp_path) is None
    (tmp_path / waits.FOLDER).mkdir(parents=True)

    def report(role: str, age: float, *phases: tuple[str, float]) -> None:
        content = {
            "role": role,
            "host": "h",
            "pid": 1,
            "waits": [{"kind": "phase", "name": name, "seconds": seconds} for name, seconds in phases],
            "newest": 0.0,
            "blocked": 0.0,
            "written": time.time() - age,
        }
        (tmp_path / waits.FOLDER / f"{role}.json").write_text(json.dumps(content))

    report("episodes", 0.0, ("other", 0.1))
    report("trainer", 1.0, ("step", 20.0), ("update_actor", 4.0), ("inner", 2.0))
    work = trainer_work(tmp_path)
    assert work is not None
    assert work.name == "inner"
    assert work.seconds == pytest.approx(3.0, abs=0.9)
    report("trainer", 1.0, ("step", 20.0))
    assert trainer_work(tmp_path) is None
    report("trainer", 100.0, ("update_actor", 4.0))
    assert trainer_work(tmp_path) is None
