"""Which tasks are kept."""

from pathlib import Path

import pytest

from aworld_train.errors import UsageError
from aworld_train.evaluation.results import open_evaluation
from aworld_train.evaluation.synthesis.verdicts import (
    Bounds,
    DropReason,
    Solved,
    solved_of,
    verdict,
)
from tests.evaluations import make_evaluation

BOUNDS = Bounds(0.25, 0.75, 0.25)


NEVER = Solved(4, 0, False)


@pytest.mark.parametrize(
    ("with_tools", "without", "reason"),
    [
        (Solved(0, 0, False), NEVER, DropReason.unscored),
        (Solved(4, 0, False), NEVER, DropReason.too_hard),
        (Solved(8, 1, False), NEVER, DropReason.too_hard),
        (Solved(4, 0, True), NEVER, DropReason.inconsistent),
        (Solved(4, 1, True), NEVER, DropReason.inconsistent),
        (Solved(4, 1, False), NEVER, None),
        (Solved(4, 3, False), Solved(4, 1, True), None),
        (Solved(4, 4, False), NEVER, DropReason.too_easy),
        (Solved(4, 2, False), Solved(0, 0, False), DropReason.unscored),
        (Solved(4, 2, False), Solved(4, 2, False), DropReason.no_tools_needed),
    ],
)
def test_a_task_is_kept_or_dropped_for_one_reason(
    with_tools: Solved, without: Solved, reason: DropReason | None
) -> None:
    assert verdict(with_tools, without, BOUNDS) is reason


def test_what_no_bounds_would_keep_is_not_measured_without_tools() -> None:
    assert Solved(4, 4, False).may_be_kept and Solved(4, 1, False).may_be_kept
    assert not Solved(4, 0, False).may_be_kept and not Solved(4, 1, True).may_be_kept


@pytest.mark.parametrize(
    "bounds", [(0, 0.5, 0), (0.6, 0.5, 0), (0.5, 1.1, 0), (0.25, 0.75, -0.1), (0.25, 0.75, 2)]
)
def test_bounds_that_keep_nothing_or_mean_nothing_are_refused(bounds: tuple[float, float, float]) -> None:
    with pytest.raises(UsageError):
        Bounds(*bounds).check()
    BOUNDS.check()


def test_attempts_are_counted_by_task_and_errors_are_not(tmp_path: Path) -> None:
    def score(index: int, attempt: int) -> float | None:
        return None if attempt == 3 else float(attempt < index)

    make_evaluation(tmp_path, tasks=4, attempts=4, score=score)
    evaluation = open_evaluation("eval-one", tmp_path)
    solved = solved_of(evaluation)
    right = {task.index: solved[task.name].right for task in evaluation.tasks.values()}
    assert right == {0: 0, 1: 1, 2: 2, 3: 3}
    assert {result.scored for result in solved.values()} == {3}
