"""What is shown of a run follows from its records: phases, episodes, and the time that is left."""

from pathlib import Path

import pytest

from aworld_train import waits
from aworld_train.training.progress import Status, Work
from aworld_train.training.run_status import RunStatus, trainer_work
from tests.replayed_run import Replay, recipe

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


def test_a_validation_that_ends_together_with_a_step_has_no_duration(tmp_path: Path, clock: Clock) -> None:
    replay = Replay(tmp_path)
    at(replay, clock, 0, 0, 0)
    at(replay, clock, 50, 1, 0)
    status = at(replay, clock, 30, STEP_1, 2)
    assert status.seconds_left == pytest.approx(3 * replay.record.rows.rows[1]["seconds"])


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


def test_parts_of_the_start_are_shown_and_noted_with_their_seconds(tmp_path: Path, clock: Clock) -> None:
    replay = Replay(tmp_path)
    shown: list[str] = []

    class Recorder:
        def note(self, line: str) -> None:
            shown.append(line)

        def update(self, status: Status, *, milestone: bool) -> None:
            shown.append(status.text())

    for work, episodes in (
        (Work("starting Ray", 5.0), 0),
        (Work("starting Ray", 7.0), 0),
        (Work("loading the model", 1.0), 0),
        (Work("loading the model", 90.0), 3),
    ):
        clock.now += 10
        replay.go_on(episodes, 0)
        replay.status.show(Recorder(), work)  # type: ignore[arg-type]
    assert shown[:-1] == [
        "starting Ray 0:05",
        "starting Ray 0:07",
        "starting Ray 0:07",
        "loading the model 0:01",
        "loading the model 0:01",
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


@pytest.mark.parametrize(
    ("role", "age", "open_waits", "work"),
    [
        ("trainer", 1.0, {"step": 20.0, "update_actor": 4.0, "inner": 2.5}, Work("inner", 3.5, 1.0)),
        ("trainer", 6.0, {"update_actor": 4.0}, Work("update_actor", 10.0, 6.0)),
        ("trainer", 6.1, {"update_actor": 4.0}, None),
        ("trainer", 1.0, {"step": 20.0}, None),
        ("episodes", 1.0, {"other": 0.1}, None),
        ("starter", 1.0, {"starting the controller": 4.0}, Work("starting the controller", 5.0, 1.0)),
    ],
)
def test_the_trainer_s_work_is_the_innermost_of_its_phases(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    role: str,
    age: float,
    open_waits: dict[str, float],
    work: Work | None,
) -> None:
    phases = tuple(waits.Wait("phase", name, seconds) for name, seconds in open_waits.items())
    listed = (waits.Wait("tool", "search", 0.1), *phases)
    process = waits.ProcessWaits(role, "host", 1, listed, newest=0.0, blocked=0.0, age=age)
    monkeypatch.setattr(waits, "read", lambda run_dir: [process] if run_dir == tmp_path else [])
    assert trainer_work(tmp_path) == work
    assert trainer_work(tmp_path / "other") is None


def test_what_starts_the_trainer_is_not_its_work_once_it_has_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    processes = [
        waits.ProcessWaits(
            role, "host", 1, (waits.Wait("phase", name, 9.0),), newest=0.0, blocked=0.0, age=1.0
        )
        for role, name in (("starter", "starting the controller"), ("trainer", "step"))
    ]
    monkeypatch.setattr(waits, "read", lambda run_dir: processes)
    assert trainer_work(tmp_path) is None
    processes.pop()
    assert trainer_work(tmp_path) == Work("starting the controller", 10.0, 1.0)


def test_the_status_has_the_figures_of_the_last_step_and_of_the_run(tmp_path: Path, clock: Clock) -> None:
    replay = Replay(tmp_path)
    replay.summary.alarms = [{"step": 2, "kind": "entropy", "text": "it has fallen"}]
    settings = recipe()
    settings.cluster.nodes, settings.cluster.gpus_per_node = 3, 4
    settings.rollout.val_n = 2
    replay.status = RunStatus(settings, replay.record, val_tasks=5)
    expected = [
        (status.phase, status.episodes_expected)
        for status in (at(replay, clock, 1, 0, 0), at(replay, clock, 1, 3, 0))
    ]
    assert expected == [("starting", 0), ("validation", 10)]
    status = at(replay, clock, 1, VALIDATED, 3)
    rows = replay.record.rows.rows
    rows[1]["reward"] = None
    replay.record.accuracies[2] = 0.5
    rows[2] |= {"staleness": 0.25, "max_staleness": 1, "teacher_kl": 0.5}
    assert replay.status.current() == Status(
        phase="training",
        step=3,
        steps=4,
        episodes=0,
        episodes_expected=16,
        reward=0.0625,
        accuracy=0.5,
        tool_calls=18,
        tokens_per_second=rows[2]["tokens_per_second"],
        seconds_left=status.seconds_left,
        name="recorded",
        steps_done=2,
        rewards=(0.0625,),
        accuracies=(0.0, 0.5),
        teacher_kls=(0.5,),
        outcomes={"answered": 11, "overlong": 5},
        outcomes_of="step 2",
        tool_errors=1,
        tool_seconds=replay.record.training[2].totals["tool_seconds"] / 5,
        staleness=0.25,
        max_staleness=1,
        gpus=12,
        seconds=replay.summary.seconds,
        alarms=("step 2: it has fallen",),
    )


def test_steps_that_end_together_took_their_mean_without_their_validations(
    tmp_path: Path, clock: Clock
) -> None:
    replay = Replay(tmp_path)
    for seconds, episodes, rows in ((0, 0, 0), (1, 1, 0), (30, BEFORE, 1), (10, STEP_1, 2)):
        at(replay, clock, seconds, episodes, rows)
    status = at(replay, clock, 100, STEP_3, 4)
    validation = replay.record.rows.rows[2]["val_seconds"]
    step = (10 + (100 - validation) / 2) / 2
    assert status.seconds_left == pytest.approx(step + validation)
