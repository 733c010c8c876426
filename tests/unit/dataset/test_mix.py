"""Weights: each source has its share, as many rows as possible are taken, and no task twice."""

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aworld_train.dataset import BuildReport
from aworld_train.dataset.builder import carry_out
from aworld_train.dataset.mix import GroupCounter, Selection, check_weights, quotas
from aworld_train.dataset.plan import BuildPlan, PlannedSource
from aworld_train.dataset.sources import SourceOptions
from aworld_train.errors import DatasetError, UsageError
from tests.locations import GSM8K_ODD

sources = st.lists(st.tuples(st.integers(1, 500), st.floats(0.01, 100)), min_size=1, max_size=5)


@given(sources, st.none() | st.integers(1, 1000))
def test_sources_are_taken_in_their_shares_and_never_beyond_what_they_have(
    mixed: list[tuple[int, float]], limit: int | None
) -> None:
    available, weights = [count for count, _ in mixed], [weight for _, weight in mixed]
    taken = quotas(available, weights, limit)
    rows = min(count * math.fsum(weights) / weight for count, weight in mixed)
    rows = rows if limit is None else min(rows, limit)
    for count, weight, count_taken in zip(available, weights, taken, strict=True):
        assert count_taken <= count
        assert abs(count_taken - rows * weight / math.fsum(weights)) <= 1 + 1e-6
    assert abs(sum(taken) - rows) < 1 + 1e-6
    assert limit is None or sum(taken) <= limit
    if limit is None:
        assert any(count_taken == count for count_taken, count in zip(taken, available, strict=True))


def test_the_limit_holds_where_shares_are_rounded() -> None:
    assert quotas([9, 9, 9], [1, 1, 2], 3) == [1, 1, 1]
    assert quotas([9, 9, 9], [1, 1, 2], 1) == [0, 0, 1]
    assert quotas([7473, 4000], [3, 1], None) == [7473, 2491]


def test_a_source_without_a_task_has_no_share() -> None:
    with pytest.raises(DatasetError, match="Source 2 of the mix has no task left"):
        quotas([5, 0], [1, 1], None)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([("a", 1.0), ("b", None)], "source b has no weight"),
        ([("a", 1.0), ("b", 0.0)], "weight of the source b is 0"),
        ([("a", float("nan"))], "is nan"),
    ],
)
def test_weights_that_are_no_mix_are_refused(weights: list[tuple[str, float | None]], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check_weights(weights)


@given(st.lists(st.integers(0, 4), max_size=50), st.integers(0, 50))
def test_ranks_count_within_groups_over_all_pieces(groups: list[int], at: int) -> None:
    ranks = GroupCounter()
    pieces = [ranks.next(np.array(part, dtype=np.int64)) for part in (groups[:at], groups[at:])]
    assert np.concatenate(pieces).tolist() == [groups[:i].count(group) for i, group in enumerate(groups)]


def test_without_weights_the_limit_takes_the_first_of_all() -> None:
    selection = Selection([0, 1], None, 3)
    assert selection.take(np.array([0, 1])).tolist() == [True, True]
    assert selection.take(np.array([1, 0, 1])).tolist() == [True, False, False]


def mixed(out: Path, limit: int | None = None) -> BuildReport:
    questions = SourceOptions(files=(str(GSM8K_ODD),), tasks="questions")
    return carry_out(
        BuildPlan(
            [PlannedSource("gsm8k", questions, 1.0), PlannedSource("arithmetic", SourceOptions(), 3.0)],
            out,
            splits={"all": 1.0},
            limit=limit,
        )
    )


def test_a_mix_has_the_rows_that_its_weights_allow_and_counts_the_rest(tmp_path: Path) -> None:
    from aworld_train.dataset import check_file

    report = mixed(tmp_path / "out")
    found = check_file(tmp_path / "out" / "all.parquet").data_sources
    assert found["arithmetic"] == 3 * found["gsm8k"]
    assert report.left_over == 4000 - found["arithmetic"]
    assert report.kept == sum(report.rows.values()) + report.merged + report.left_over
    assert [source["source"] for source in report.sources] == ["gsm8k", "arithmetic"]
    assert [source["weight"] for source in report.sources] == [1.0, 3.0]


def test_a_limit_is_shared_out_by_the_weights(tmp_path: Path) -> None:
    from aworld_train.dataset import check_file

    mixed(tmp_path / "out", limit=8)
    assert check_file(tmp_path / "out" / "all.parquet").data_sources == {"gsm8k": 2, "arithmetic": 6}
