"""Figures over attempts against enumeration, SciPy and simulation."""

import itertools
import math
import random
from statistics import NormalDist, fmean

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import stats

from aworld_train.evaluation.comparison import (
    bootstrap_interval,
    compare,
    holm,
    mcnemar,
    sign_permutation,
    smallest_difference,
    widened,
)
from aworld_train.evaluation.statistics import (
    average,
    average_interval,
    majority,
    pass_all,
    pass_at,
    wilson_interval,
)

ATTEMPTS = st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=7)
COVERED = (0.93, 0.97)
ROUNDS = 1000


@given(ATTEMPTS, st.integers(1, 7))
def test_pass_at_and_pass_all_are_those_of_all_choices(attempts: list[float], k: int) -> None:
    choices = list(itertools.combinations(attempts, k))
    if not choices:
        assert pass_at({"a": attempts}, k) is None and pass_all({"a": attempts}, k) is None
        return
    assert pass_at({"a": attempts}, k) == pytest.approx(fmean(any(choice) for choice in choices))
    assert pass_all({"a": attempts}, k) == pytest.approx(fmean(all(choice) for choice in choices))


def test_tasks_with_fewer_attempts_than_k_are_left_out() -> None:
    assert pass_at({"a": [1.0], "b": [0.0, 0.0]}, 2) == 0.0


@given(st.lists(ATTEMPTS, min_size=1, max_size=5))
@example([[1.0]] * 4)  # Wilson's upper bound is rounded to less than 1
def test_a_task_counts_once_however_many_attempts_it_has(tasks: list[list[float]]) -> None:
    scores = {str(number): attempts for number, attempts in enumerate(tasks)}
    assert average(scores) == pytest.approx(fmean(fmean(attempts) for attempts in tasks))
    low, high = average_interval(scores)
    assert 0 <= low <= average(scores) <= high <= 1


@pytest.mark.parametrize(("correct", "n"), [(0, 10), (1, 10), (7, 30), (150, 300), (300, 300)])
def test_with_one_attempt_the_interval_is_wilsons(correct: int, n: int) -> None:
    scores = {str(number): [float(number < correct)] for number in range(n)}
    expected = stats.binomtest(correct, n).proportion_ci(0.95, method="wilson")
    assert average_interval(scores) == pytest.approx((expected.low, expected.high), abs=1e-6)


@pytest.mark.parametrize("k", [1, 4])
@pytest.mark.parametrize("tasks", [30, 100, pytest.param(300, marks=pytest.mark.slow)])
@pytest.mark.parametrize("shape", [(1.2, 0.8), (0.3, 0.3), (0.5, 4.0), (60.0, 40.0)])
def test_the_interval_covers_the_true_average_as_often_as_it_says(
    shape: tuple[float, float], tasks: int, k: int
) -> None:
    rng = random.Random(f"{tasks} {k} {shape}")
    true, covered = shape[0] / sum(shape), 0
    for _ in range(ROUNDS):
        # Tasks differ in difficulty as Beta distributions say: mostly easy or hard, either, mostly hard, nearly equal.
        scores = played(rng, [rng.betavariate(*shape) for _ in range(tasks)], k)
        low, high = average_interval(scores)
        covered += low <= true <= high
    assert COVERED[0] <= covered / ROUNDS <= COVERED[1]


@pytest.mark.parametrize(
    ("attempts", "share"),
    [
        ([("4", 1.0), ("4", 1.0), ("5", 0.0)], 1.0),
        ([("5", 0.0), ("5", 0.0), ("4", 1.0)], 0.0),
        ([("4", 1.0), ("5", 0.0)], 0.5),
        ([(None, 0.0), (None, 0.0), ("4", 1.0)], 1.0),
        ([(None, 0.0)], 0.0),
    ],
)
def test_the_majority_counts_and_ties_count_in_part(
    attempts: list[tuple[str | None, float]], share: float
) -> None:
    assert majority({"a": attempts}, len(attempts)) == share
    assert majority({"a": attempts}, len(attempts) + 1) is None


def test_one_task_tells_little_however_often_it_is_attempted() -> None:
    low, high = average_interval({"a": [1.0, 0.0] * 50})
    assert low < 0.1 and high > 0.9
    assert average_interval({"a": [1.0] * 100}) == pytest.approx(wilson_interval(1, 1))


@pytest.mark.parametrize(
    ("correct", "n", "expected"),
    [
        # Newcombe 1998, Statistics in Medicine 17, 857-872, table I, method 3.
        (81, 263, (0.2553, 0.3662)),
        (15, 148, (0.0624, 0.1605)),
        (0, 20, (0.0, 0.1611)),
        (1, 29, (0.0061, 0.1718)),
    ],
)
def test_the_interval_is_the_published_one(correct: int, n: int, expected: tuple[float, float]) -> None:
    scores = {str(number): [float(number < correct)] for number in range(n)}
    assert average_interval(scores) == pytest.approx(expected, abs=5e-5)


@pytest.mark.parametrize(("n", "c", "k"), [(200, 10, 1), (200, 10, 10), (200, 10, 100), (50, 49, 2)])
def test_pass_at_is_the_published_product(n: int, c: int, k: int) -> None:
    # Figure 3 of Chen et al. 2021.
    scores = {"a": [1.0] * c + [0.0] * (n - c)}
    assert pass_at(scores, k) == pytest.approx(1 - math.prod(1 - k / i for i in range(n - c + 1, n + 1)))


def test_no_score_at_all_is_an_error() -> None:
    with pytest.raises(ValueError, match="no task"):
        average({"a": []})
    with pytest.raises(ValueError, match="no task"):
        compare({"a": [1.0]}, {"b": [1.0]})


@pytest.mark.parametrize(("won", "lost"), [(0, 0), (5, 0), (3, 9), (10, 10), (40, 20)])
def test_mcnemar_is_the_exact_binomial_test(won: int, lost: int) -> None:
    expected = stats.binomtest(won, won + lost).pvalue if won + lost else 1.0
    assert mcnemar(won, lost) == pytest.approx(expected)


@pytest.mark.parametrize("n", [8, 40])
def test_the_permutation_test_agrees_with_scipys(n: int) -> None:
    rng = random.Random(n)
    values = [rng.gauss(0.2, 1) for _ in range(n)]
    expected = stats.permutation_test(
        (values,), lambda x, axis: x.mean(axis=axis), permutation_type="samples", n_resamples=20_000, rng=1
    ).pvalue
    assert sign_permutation(values) == pytest.approx(expected, abs=0.02)


def test_the_bootstrap_agrees_with_scipys() -> None:
    rng = random.Random(0)
    values = [rng.choice([-1.0, 0.0, 0.0, 1.0]) + rng.random() / 10 for _ in range(200)]
    expected = stats.bootstrap(
        (values,), fmean, vectorized=False, method="percentile", rng=1
    ).confidence_interval
    assert bootstrap_interval(values) == pytest.approx((expected.low, expected.high), abs=0.01)


def played(rng: random.Random, difficulties: list[float], k: int) -> dict[str, list[float]]:
    """k attempts at tasks, each right as often as its task is easy."""
    return {str(n): [float(rng.random() < p) for _ in range(k)] for n, p in enumerate(difficulties)}


@pytest.mark.parametrize("k", [1, 4])
@pytest.mark.parametrize(("tasks", "rounds"), [(20, 400), (60, 400), (200, 300)])
def test_equal_agents_are_found_different_in_at_most_six_of_a_hundred(
    tasks: int, rounds: int, k: int
) -> None:
    rng = random.Random(f"{k} {tasks}")
    found = 0
    for _ in range(rounds):
        difficulties = [rng.betavariate(1.2, 0.8) for _ in range(tasks)]
        result = compare(played(rng, difficulties, k), played(rng, difficulties, k), resamples=400)
        found += result.p_value < 0.05
    assert found / rounds <= 0.06


@pytest.mark.parametrize("k", [1, 4])
@pytest.mark.parametrize(("tasks", "rounds"), [(30, 800), (100, 600)])
def test_the_interval_of_a_difference_covers_the_true_one(tasks: int, rounds: int, k: int) -> None:
    rng = random.Random(f"{k} {tasks}")
    true, covered = 0.1, 0
    for _ in range(rounds):
        difficulties = [0.9 * rng.betavariate(1.2, 0.8) for _ in range(tasks)]
        first = played(rng, difficulties, k)
        second = played(rng, [each + true for each in difficulties], k)
        values = [fmean(second[task]) - fmean(first[task]) for task in first]
        low, high = bootstrap_interval(widened(values, k), 1000)
        covered += low <= true <= high
    # Wider than need be for few tasks, and never much too narrow.
    assert 0.93 <= covered / rounds <= 0.985


def test_a_difference_of_the_smallest_size_is_found_in_eight_of_ten_measurements() -> None:
    rng = random.Random(0)
    found, rounds, tasks, true = 0, 400, 150, 0.11
    sizes = []
    for _ in range(rounds):
        difficulties = [0.88 * rng.betavariate(1.2, 0.8) for _ in range(tasks)]
        first = played(rng, difficulties, 4)
        second = played(rng, [each + true for each in difficulties], 4)
        values = [fmean(second[task]) - fmean(first[task]) for task in first]
        sizes.append(smallest_difference(widened(values, 4)))
        found += sign_permutation(values, 300) < 0.05
    # The power at the true difference, which the normal approximation gives for the mean of the sizes.
    normal = NormalDist()
    expected = normal.cdf(
        true / fmean(sizes) * (normal.inv_cdf(0.975) + normal.inv_cdf(0.8)) - normal.inv_cdf(0.975)
    )
    assert found / rounds == pytest.approx(expected, abs=0.06)


def test_tasks_that_all_agree_give_no_point() -> None:
    few = compare({"a": [1.0], "b": [0.0]}, {"a": [1.0], "b": [0.0]})
    many = {str(number): [1.0] for number in range(300)}
    assert few.difference == 0 and few.interval[0] < -0.3 and few.interval[1] > 0.3 and few.p_value == 1
    low, high = compare(many, many).interval
    assert -0.02 < low < 0 < high < 0.02
    assert compare(many, many).smallest > 0


def test_a_comparison_is_of_the_tasks_in_common() -> None:
    first = {"a": [1.0], "b": [0.0], "c": [0.0], "only": [1.0]}
    second = {"a": [1.0], "b": [1.0], "c": [1.0], "other": [0.0]}
    result = compare(first, second)
    assert (result.tasks, result.won, result.lost) == (3, 2, 0)
    assert result.difference == pytest.approx(2 / 3)
    assert result.p_value == mcnemar(2, 0)


def test_the_smallest_difference_falls_with_the_root_of_the_tasks() -> None:
    few, many = [-1.0, 0.0, 1.0, 0.0] * 10, [-1.0, 0.0, 1.0, 0.0] * 40
    assert smallest_difference(few) == pytest.approx(2 * smallest_difference(many))


def test_holm_corrects_as_published() -> None:
    # The example of Holm's procedure in Aickin and Gensler 1996.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([]) == []
