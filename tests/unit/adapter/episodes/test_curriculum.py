"""The order of a curriculum: tasks that teach come more often, each comes again, and a checkpoint continues it."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torchdata.stateful_dataloader import StatefulDataLoader

from aworld_train.adapter.episodes.curriculum import DifficultyOrder

RATES = [0.0, 0.1, 0.5, 0.9, 1.0]


def play(order: DifficultyOrder, draws: int, rate: Callable[[int], float], first: int = 0) -> list[int]:
    """Draw tasks one after the other, each with a group of eight episodes that are solved at its rate."""
    drawn = []
    for number in range(first, first + draws):
        task = next(order)
        order.begin([f"uid{number}"])
        order.end({f"uid{number}": [rate(task)] * 8})
        drawn.append(task)
    return drawn


def test_the_weight_is_the_formula_s() -> None:
    order = DifficultyOrder(1, 7, shuffle=True)
    assert order.weight(0) == 1
    next(order)
    order.begin(["uid"])
    order.end({"uid": [1.0, 1.0, 7.5, -3.0]})
    assert order.weight(0) == pytest.approx(4 * (4 / 6) * (2 / 6))
    order.end({"uid": [1.0]})
    assert order.weight(0) == pytest.approx(4 * (4 / 6) * (2 / 6)), "what was counted is not counted again"


def test_what_is_too_easy_or_too_hard_comes_less_often_and_never_stays_away() -> None:
    tasks = 50
    drawn = play(DifficultyOrder(tasks, 7, shuffle=True), 4000, lambda task: RATES[task % 5])
    counts = Counter(drawn)
    by_rate = {rate: sum(counts[task] for task in range(place, tasks, 5)) for place, rate in enumerate(RATES)}
    assert by_rate[0.5] > 2 * by_rate[0.1] > 2 * by_rate[0.0]
    assert by_rate[0.5] > 2 * by_rate[0.9] > 2 * by_rate[1.0]
    assert by_rate[0.5] / by_rate[1.0] == pytest.approx(10, rel=0.4)
    assert set(drawn[-1500:]) == set(range(tasks)), "each comes again"


@settings(max_examples=25)
@given(tasks=st.integers(1, 12), seed=st.integers(0, 9), before=st.integers(0, 30), shuffle=st.booleans())
def test_the_same_seed_picks_the_same_tasks_after_a_checkpoint_too(
    tasks: int, seed: int, before: int, shuffle: bool
) -> None:
    def rate(task: int) -> float:
        return task / tasks

    whole = play(DifficultyOrder(tasks, seed, shuffle), before + 20, rate)
    first = DifficultyOrder(tasks, seed, shuffle)
    assert play(first, before, rate) == whole[:before]
    resumed = DifficultyOrder(tasks, seed, shuffle)
    resumed.load_state_dict(first.state_dict())
    assert play(resumed, 20, rate, before) == whole[before:]


def test_every_task_is_drawn_once_before_any_comes_again_where_nothing_is_known() -> None:
    order = DifficultyOrder(20, 3, shuffle=True)
    drawn = [next(order) for _ in range(10)]
    assert len(set(drawn)) == 10
    assert [next(DifficultyOrder(5, 3, shuffle=False)) for _ in range(1)] == [0]


@pytest.mark.parametrize("size", [1, 4])
def test_a_data_loader_keeps_the_state_with_tasks_that_are_under_way(size: int) -> None:
    def loader() -> tuple[DifficultyOrder, Any]:
        order = DifficultyOrder(12, 5, shuffle=True)
        return order, StatefulDataLoader(
            list(range(12)), batch_size=size, drop_last=True, sampler=order, collate_fn=list
        )

    order, loaded = loader()
    batches = iter(loaded)
    for number in range(6):
        names = [f"{number}/{place}" for place in range(size)]
        tasks = next(batches)
        order.begin(names)
        if number < 5:
            order.end({name: [float(task % 2)] * 4 for name, task in zip(names, tasks, strict=True)})
    state = loaded.state_dict()
    again, resumed = loader()
    resumed.load_state_dict(state)
    continued = iter(resumed)
    for number in range(6, 30):
        expected, found = next(batches), next(continued)
        assert found == expected
        names = [f"{number}/{place}" for place in range(size)]
        for each in (order, again):
            each.begin(names)
            rewards = {name: [float(task % 2)] * 4 for name, task in zip(names, expected, strict=True)}
            each.end(rewards | ({f"5/{place}": [1.0] for place in range(size)} if number == 6 else {}))
