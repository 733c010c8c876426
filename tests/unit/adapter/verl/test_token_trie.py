"""A trie has each token once for all rows that have it, and passes forward as few tokens as their limits allow."""

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aworld_train.adapter.verl.token_trie import Row, at_least, passes, token_trie
from tests.token_rows import rows_with_branches

rows_of = rows_with_branches(max_rows=7)


def beginnings(rows: Sequence[Row]) -> set[tuple[int, ...]]:
    return {tuple(row[:end].tolist()) for row in rows for end in range(1, len(row) + 1)}


@given(rows=rows_of)
def test_each_beginning_of_rows_is_one_token_of_the_trie(rows: list[Row]) -> None:
    trie = token_trie(rows)
    assert len(trie.tokens) == len(beginnings(rows)) == sum(trie.lengths)
    assert trie.tokens[trie.paths].tolist() == [int(token) for row in rows for token in row]
    assert trie.positions[trie.paths].tolist() == [place for row in rows for place in range(len(row))]


@given(rows=rows_of)
def test_a_row_is_a_segment_and_those_above_it(rows: list[Row]) -> None:
    trie = token_trie(rows)
    ends = np.cumsum(trie.lengths)
    segment_of = np.searchsorted(ends, np.arange(len(trie.tokens)), side="right")
    for path in np.split(trie.paths.numpy(), np.cumsum([len(row) for row in rows])[:-1]):
        segments = list(dict.fromkeys(segment_of[path].tolist()))
        assert (*trie.ancestors[segments[-1]], segments[-1]) == tuple(segments)


@pytest.mark.parametrize("limit", ["max_rows", "max_tokens"])
@given(rows=rows_of, size=st.integers(1, 24))
def test_passes_forward_as_few_tokens_as_any_division_of_neighbours(
    limit: str, rows: list[Row], size: int
) -> None:
    divided = passes(rows, **{limit: size})
    assert sorted(index for part in divided for index in part.rows) == list(range(len(rows)))
    assert [part.unique for part in divided] == [
        len(beginnings([rows[index] for index in part.rows])) for part in divided
    ]

    def fits(part: Sequence[Row]) -> bool:
        return len(part) == 1 or (len(part) if limit == "max_rows" else len(beginnings(part))) <= size

    assert all(fits([rows[index] for index in part.rows]) for part in divided)
    ordered = sorted(rows, key=lambda row: row.tolist())
    divisions = [
        _cut(ordered, places)
        for cuts in range(len(rows))
        for places in combinations(range(1, len(rows)), cuts)
    ]
    least = min(
        (sum(len(beginnings(part)) for part in parts), len(parts))
        for parts in divisions
        if all(fits(part) for part in parts)
    )
    assert (sum(part.unique for part in divided), len(divided)) == least


def _cut(rows: list[Row], places: Sequence[int]) -> list[list[Row]]:
    return [rows[start:end] for start, end in zip((0, *places), (*places, len(rows)), strict=True)]


@given(rows=rows_of, more=st.integers(0, 7))
def test_a_rank_divides_further_until_it_has_as_many_passes_as_the_others(rows: list[Row], more: int) -> None:
    count = min(len(rows), 1 + more)
    divided = at_least(passes(rows), count, rows)
    assert len(divided) == count
    assert sorted(index for part in divided for index in part.rows) == list(range(len(rows)))
    for part in divided:
        assert part.unique == len(beginnings([rows[index] for index in part.rows]))
