"""Signs that a run no longer learns raise an alarm once, when they have lasted, and never in a run that learns."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aworld_train.training.alarms import STEPS, AlarmWatch


@dataclass
class Episodes:
    compared_tasks: int = 4
    varied_tasks: int = 2
    outcomes: Counter[str] = field(default_factory=lambda: Counter(answered=8))
    played: Counter[int] = field(default_factory=Counter)
    dropped: Counter[int] = field(default_factory=Counter)


GOOD: dict[str, Any] = {"loss": 0.1, "grad_norm": 1.0, "entropy": 0.6}


def kinds(rows: list[tuple[dict[str, Any], Episodes]]) -> list[tuple[int, str]]:
    watch = AlarmWatch()
    return [
        (alarm.step, alarm.kind)
        for step, (row, episodes) in enumerate(rows, 1)
        for alarm in watch.observe(step, row, episodes)
    ]


@given(
    st.lists(
        st.tuples(
            st.floats(-5, 5), st.floats(0, 100), st.floats(0.1, 5), st.integers(1, 4), st.integers(0, 8)
        ),
        max_size=20,
    )
)
def test_a_run_that_learns_raises_none(steps: list[Any]) -> None:
    rows = [
        (
            {"loss": loss, "grad_norm": norm, "entropy": entropy},
            Episodes(4, varied, Counter(answered=1, timeout=timeouts)),
        )
        for loss, norm, entropy, varied, timeouts in steps
    ]
    assert kinds(rows) == []


def test_a_teacher_has_something_to_learn_from_where_all_rewards_are_equal() -> None:
    assert kinds([(GOOD | {"teacher_kl": 0.1}, Episodes(varied_tasks=0))] * 2 * STEPS) == []


def test_each_sign_raises_one_alarm_while_it_lasts_and_another_when_it_comes_back() -> None:
    bad = {
        "no_variance": (GOOD, Episodes(varied_tasks=0)),
        "entropy": ({**GOOD, "entropy": 0.001}, Episodes()),
        "probabilities": ({**GOOD, "rollout_probs_diff_mean": 0.03}, Episodes()),
        "one_outcome": (GOOD, Episodes(outcomes=Counter(timeout=8))),
    }
    good = (GOOD, Episodes())
    for kind, row in bad.items():
        assert kinds([good, *[row] * (STEPS - 1), good, *[row] * 5, good, *[row] * STEPS]) == [
            (1 + STEPS - 1 + 1 + STEPS, kind),
            (1 + STEPS - 1 + 1 + 5 + 1 + STEPS, kind),
        ]


def test_a_step_without_anything_to_compare_is_no_sign() -> None:
    assert kinds([(GOOD, Episodes(compared_tasks=0, varied_tasks=0))] * 5) == []


def test_a_loss_that_is_no_number_is_told_at_once_and_ends_a_run_when_it_lasts() -> None:
    watch = AlarmWatch()
    assert watch.observe(1, GOOD, Episodes()) == []
    for step in (2, 3):
        watch.observe(step, {**GOOD, "grad_norm": None}, Episodes())
        assert watch.reason_to_stop is None
    assert [(alarm.step, alarm.kind) for alarm in watch.alarms] == [(2, "not_finite")]
    watch.observe(4, {**GOOD, "loss": None}, Episodes())
    assert watch.reason_to_stop is not None and "trainer.lr" in watch.reason_to_stop


@pytest.mark.parametrize(
    ("first", "later", "raises"),
    [
        (1e-6, (4e-3, 1e-5), True),  # in fp32 this is another model
        (1e-6, (9e-4, 1e-5), False),
        (0.3, (0.9, 0.004), False),  # in bf16 single tokens differ much
        (0.3, (0.9, 0.021), True),
        (0.3, (None, None), False),
    ],
)
def test_probabilities_that_differ_more_than_rounding_raise_an_alarm_that_names_the_correction(
    first: float, later: tuple[float | None, float | None], raises: bool
) -> None:
    watch = AlarmWatch()
    watch.observe(
        1, {**GOOD, "rollout_probs_diff_max": first, "rollout_probs_diff_mean": first / 100}, Episodes()
    )
    highest, mean = later
    row = {**GOOD, "rollout_probs_diff_max": highest, "rollout_probs_diff_mean": mean}
    for step in range(2, 2 + STEPS):
        watch.observe(step, row, Episodes())
    assert [alarm.kind for alarm in watch.alarms] == (["probabilities"] if raises else [])
    assert all("algorithm.rollout_correction=token" in alarm.text for alarm in watch.alarms)


def test_probabilities_of_older_weights_than_are_trained_are_no_sign() -> None:
    watch = AlarmWatch()
    for step, staleness in enumerate((0.0, *[0.5] * STEPS), start=1):
        difference = 0.2 * staleness
        row = {"rollout_probs_diff_max": difference, "rollout_probs_diff_mean": difference}
        watch.observe(step, {**GOOD, **row, "staleness": staleness}, Episodes())
    assert watch.alarms == []


def test_the_outcome_that_all_episodes_had_is_named() -> None:
    watch = AlarmWatch()
    for step in range(1, STEPS + 1):
        watch.observe(step, GOOD, Episodes(outcomes=Counter(overlong=8)))
    (alarm,) = watch.alarms
    assert alarm.text.endswith("ended as overlong")


def drops(*dropped: dict[int, int], tasks: int = 4, n: int = 8) -> list[tuple[dict[str, Any], Episodes]]:
    """Steps with so many episodes of each task, of which so many are left out."""
    played = Counter(dict.fromkeys(range(tasks), n))
    return [(GOOD, Episodes(played=played, dropped=Counter(one))) for one in dropped]


@pytest.mark.parametrize(
    ("dropped", "raised"),
    [
        ([{}, {0: 2}, {1: 2}, {2: 1, 3: 1}], []),
        ([{0: 3}], [(1, "dropped_task")]),
        ([{0: 1}, {0: 1}, {0: 1}, {0: 1}], [(3, "dropped_task")]),
        ([{0: 8, 1: 8, 2: 8, 3: 8}], []),
        ([{}, {0: 8, 1: 8, 2: 8, 3: 8}, {}], [(2, "dropped_step")]),
        ([{0: 1, 1: 1, 2: 1, 3: 1}, {0: 2, 1: 2, 2: 2, 3: 2}], []),
        ([{}, {0: 2, 1: 1}, {}], [(2, "dropped_step")]),
        ([{0: 3}, {1: 2}, {1: 2}, {1: 2}], [(1, "dropped_task"), (3, "dropped_task")]),
    ],
)
def test_a_step_or_a_task_with_more_than_its_share_of_what_is_left_out_raises_one_at_once(
    dropped: list[dict[int, int]], raised: list[tuple[int, str]]
) -> None:
    assert kinds(drops(*dropped)) == raised


def test_one_task_is_compared_with_no_other() -> None:
    assert kinds(drops({0: 8}, {0: 8}, tasks=1)) == []
