"""Which token rows are chosen: distinct ones, the best of a task, as many of each level, and others held out."""

import random
from collections import Counter

import pytest

from aworld_train.dataset.row_selection import Choice, choose_rows
from aworld_train.dataset.token_rows import TokenRow

ALL = Choice(held_out=0.0)


def row(task: str, origin: str, ids: list[int], reward: float | None = 1.0, level: str = "") -> TokenRow:
    return TokenRow(ids, [0] + [1] * (len(ids) - 1), task, origin, level, reward)


def origins(rows: object) -> set[str]:
    return {one.origin for one in rows}  # type: ignore[attr-defined]


def test_what_repeats_another_one_is_left_out_once() -> None:
    chosen = choose_rows([row("a", "2", [1, 2]), row("a", "1", [1, 2]), row("a", "3", [1, 3])], ALL)
    assert origins(chosen.train) == {"1", "3"}
    assert chosen.dropped == {"repeats another one": 1}


def test_rows_that_differ_in_their_mask_alone_are_two() -> None:
    other = TokenRow([1, 2], [0, 0], "a", "2")
    assert len(choose_rows([row("a", "1", [1, 2]), other], ALL).train) == 2


def test_the_best_of_a_task_have_the_highest_reward_then_the_fewest_tokens() -> None:
    rows = [
        row("a", "low", [1, 2], 0.5),
        row("a", "long", [1, 3, 4, 5]),
        row("a", "short", [1, 3]),
        row("a", "none", [1, 6], None),
        row("b", "other", [1, 7], 0.1),
    ]
    assert origins(choose_rows(rows, Choice(1, held_out=0.0)).train) == {"short", "other"}
    chosen = choose_rows(rows, Choice(3, held_out=0.0))
    assert origins(chosen.train) == {"short", "long", "low", "other"}
    assert chosen.dropped == {"a better one of its task was taken": 1}


def test_an_episode_is_taken_or_left_out_with_all_its_rows() -> None:
    rows = [row("a", "1", [1, 2]), row("a", "1", [1, 3, 4, 5, 6]), row("a", "2", [1, 4])]
    chosen = choose_rows(rows, Choice(max_tokens=4, held_out=0.0))
    assert origins(chosen.train) == {"2"}
    assert chosen.dropped == {"longer than --max-tokens": 1}
    assert len(choose_rows(rows, Choice(2, held_out=0.0)).train) == 3


def test_levels_are_balanced_by_the_rarest() -> None:
    rows = [
        row(f"{level}{n}", f"{level}{n}", [1, 100 * level + n], level=str(level))
        for level in (1, 2, 3)
        for n in range(10 // level)
    ]
    chosen = choose_rows(rows, Choice(balance_levels=True, held_out=0.0))
    assert Counter(one.level for one in chosen.train) == {"1": 3, "2": 3, "3": 3}
    assert chosen.dropped == {"its level has enough (--balance)": 9}


@pytest.mark.parametrize("share", [0.0, 0.1, 0.25])
def test_tasks_are_held_out_as_a_whole_in_whatever_order_rows_come(share: float) -> None:
    rows = [row(f"task {n // 3}", str(n), [1, n]) for n in range(120)]
    chosen = choose_rows(rows, Choice(held_out=share))
    random.Random(1).shuffle(rows)
    assert choose_rows(rows, Choice(held_out=share)) == chosen
    tasks = [{one.task for one in part} for part in (chosen.train, chosen.val)]
    assert not tasks[0] & tasks[1]
    assert len(tasks[1]) == round(40 * share)
    assert share == 0 or choose_rows(rows, Choice(held_out=share, seed=7)).val != chosen.val
