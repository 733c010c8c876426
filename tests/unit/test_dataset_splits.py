"""Splits: disjoint, sized as asked, and the same for the same seed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aworld_train.dataset.splits import check_splits, cut, parse_splits, shuffled
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


@given(st.integers(0, 500), fractions)
def test_no_position_is_in_two_splits_and_each_has_its_size(count: int, splits: dict[str, float]) -> None:
    parts = cut(count, splits)
    positions = [position for part in parts.values() for position in part]
    assert positions == list(range(len(positions)))
    assert len(positions) <= count
    for name, part in parts.items():
        assert abs(len(part) - splits[name] * count) <= 1


@given(st.sets(st.text(max_size=8), max_size=40), st.integers(0, 10))
def test_the_order_depends_on_the_seed_and_the_tasks_alone(keys: set[str], seed: int) -> None:
    order = shuffled(keys, seed)
    assert sorted(order) == sorted(keys)
    assert shuffled(sorted(keys, reverse=True), seed) == order
    left_out = order[:1]
    assert shuffled(keys - set(left_out), seed) == order[1:]


def test_another_seed_gives_another_order() -> None:
    keys = [str(i) for i in range(20)]
    assert shuffled(keys, 0) != shuffled(keys, 1)
