"""Splits: disjoint, of the given sizes, and the same for the same seed."""

from itertools import accumulate, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aworld_train.dataset.splits import SplitAssignment, check_splits, cut, parse_splits
from aworld_train.errors import UsageError

fractions = st.lists(st.floats(0.001, 1), min_size=1, max_size=5).map(
    lambda parts: {f"s{i}": part / max(1.0, sum(parts)) for i, part in enumerate(parts)}
)


@pytest.mark.parametrize(
    ("texts", "splits"),
    [
        ([], None),
        (["train=0.9", "val=0.1"], {"train": 0.9, "val": 0.1}),
        (["train=0.9,val=0.1"], {"train": 0.9, "val": 0.1}),
        (["train=.9 val=.05", "test=.05"], {"train": 0.9, "val": 0.05, "test": 0.05}),
    ],
)
def test_splits_are_read_from_several_options_or_one(
    texts: list[str], splits: dict[str, float] | None
) -> None:
    assert parse_splits(texts) == splits


@pytest.mark.parametrize("text", ["train", "train=", "train=most", "train=0.5,train=0.5"])
def test_a_split_that_cannot_be_read_is_named(text: str) -> None:
    with pytest.raises(UsageError, match="train"):
        parse_splits([text])


@pytest.mark.parametrize(
    ("splits", "message"),
    [
        ({}, "No split"),
        ({"train": 0.9, "val": 0.2}, "add up to 1.1"),
        ({"train": 0.0}, "more than 0"),
        ({"train": -0.5}, "more than 0"),
        ({"train": float("nan")}, "more than 0"),
        ({"train": 1.5}, "more than 0"),
        ({"../train": 0.5}, "cannot name a split"),
        ({"": 0.5}, "cannot name a split"),
    ],
)
def test_fractions_that_cannot_be_cut_are_refused(splits: dict[str, float], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check_splits(splits)


def test_fractions_that_add_up_to_one_but_for_floating_point_are_accepted() -> None:
    check_splits({str(i): 0.1 for i in range(10)})
    check_splits({"a": 1 / 3, "b": 1 / 3, "c": 1 / 3})


@given(st.lists(st.integers(0, 200), min_size=1, max_size=6), fractions)
def test_every_split_has_its_fraction_of_every_stratum_and_of_the_whole(
    counts: list[int], splits: dict[str, float]
) -> None:
    ends = cut(counts, splits)
    for count, stratum in zip(counts, ends, strict=True):
        assert list(stratum) == sorted(stratum) and stratum[-1] <= count
        for size, fraction in zip(sizes(stratum), splits.values(), strict=True):
            assert abs(size - fraction * count) <= 2
    for i, fraction in enumerate(splits.values()):
        total = sum(sizes(stratum)[i] for stratum in ends)
        assert abs(total - fraction * sum(counts)) <= 1 + len(counts) * 0.5


def sizes(ends: list[int]) -> list[int]:
    return [end - start for start, end in pairwise([0, *ends])]


@given(st.integers(0, 500), fractions)
def test_one_stratum_is_cut_at_the_rounded_sums_of_the_fractions(
    count: int, splits: dict[str, float]
) -> None:
    (ends,) = cut([count], splits)
    for end, total in zip(ends, accumulate(splits.values()), strict=True):
        assert abs(end - count * total) <= 0.5 + 1e-6


def test_small_strata_do_not_starve_a_split() -> None:
    ends = cut([3] * 30, {"train": 0.9, "val": 0.1})
    assert sum(sizes(stratum)[1] for stratum in ends) == 9


@given(st.lists(st.integers(0, 3), max_size=60), st.integers(0, 60))
def test_going_over_tasks_in_pieces_assigns_them_as_in_one_go(strata: list[int], at: int) -> None:
    ends = cut([strata.count(stratum) for stratum in range(4)], {"a": 0.5, "b": 0.3})
    whole = SplitAssignment(ends).assign(np.array(strata, dtype=np.int64))
    assignment = SplitAssignment(ends)
    pieces = [assignment.assign(np.array(part, dtype=np.int64)) for part in (strata[:at], strata[at:])]
    assert np.concatenate(pieces).tolist() == whole.tolist()
    for stratum, split_ends in enumerate(ends):
        assigned = [place for place, its in zip(whole, strata, strict=True) if its == stratum]
        assert assigned == sorted(assigned)
        assert [assigned.count(0), assigned.count(1)] == sizes(split_ends)
