"""The rows of a step follow from its number and the seed, so a resumed run trains what it would have trained."""

import pytest

pytest.importorskip("verl")

from aworld_train.adapter.verl.sft_trainer import StepRows


def test_an_epoch_has_each_row_once_but_for_what_fills_no_batch() -> None:
    steps = StepRows(10, 3, seed=1)
    assert len(steps) == 3
    epochs = [
        [index for step in range(first, first + 3) for index in steps.of_step(step)] for first in (1, 4, 7)
    ]
    for epoch in epochs:
        assert len(epoch) == len(set(epoch)) == 9
    assert epochs[0] != epochs[1] != epochs[2]


def test_a_step_has_the_same_rows_wherever_a_run_begins() -> None:
    taken = [StepRows(7, 2, seed=3).of_step(step) for step in range(1, 10)]
    assert [StepRows(7, 2, seed=3).of_step(step) for step in (9, 4)] == [taken[8], taken[3]]
    assert [StepRows(7, 2, seed=4).of_step(step) for step in range(1, 10)] != taken


def test_ranks_share_a_step() -> None:
    whole = StepRows(20, 6, seed=3).of_step(5)
    shares = [StepRows(20, 6, seed=3, rank=rank, ranks=2).of_step(5) for rank in (0, 1)]
    assert [len(share) for share in shares] == [3, 3]
    assert sorted(shares[0] + shares[1]) == sorted(whole)
