"""A run ends early after as many validations without a better one as its recipe has patience for."""

import pytest

from aworld_train.training.run_requests import early_stop_reason

ACCURACIES = {0: 0.2, 5: 0.6, 10: 0.6, 15: 0.5}


@pytest.mark.parametrize(
    ("accuracies", "patience", "best"),
    [
        (ACCURACIES, 2, "step 5, 60.0%,"),
        (ACCURACIES, 3, None),
        (ACCURACIES, 0, None),
        (ACCURACIES | {20: 0.61}, 1, None),
        ({0: 0.7, 5: 0.6}, 1, "step 0, 70.0%,"),
        ({0: 0.7}, 1, None),
        ({}, 1, None),
        (
            {0: -2.0, 5: -0.51234, 10: -0.6},
            1,
            "the held-out loss of step 5, 0.5123, was not undercut in the 1",
        ),
        ({0: -2.0, 5: -0.5}, 1, None),
    ],
)
def test_an_accuracy_has_to_exceed_the_best_before_it(
    accuracies: dict[int, float], patience: int, best: str | None
) -> None:
    reason = early_stop_reason(accuracies, patience)
    assert (reason is None) == (best is None)
    assert best is None or best in str(reason)
