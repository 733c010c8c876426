"""Rows of tokens that begin alike, as those of a group and of an episode do."""

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from aworld_train.adapter.verl.token_trie import Row

VOCABULARY = 12


@st.composite
def _rows(draw: st.DrawFn, max_rows: int) -> list[Row]:
    """Each row begins anew, or with a part of an earlier one, which it may repeat, end within or continue."""
    tokens = st.lists(st.integers(0, VOCABULARY - 1), max_size=5)
    rows: list[list[int]] = [draw(tokens.filter(len))]
    for _ in range(draw(st.integers(0, max_rows - 1))):
        earlier = draw(st.sampled_from(rows))
        row = [*earlier[: draw(st.integers(0, len(earlier)))], *draw(tokens)]
        rows.append(row or draw(tokens.filter(len)))
    return [np.array(row) for row in draw(st.permutations(rows))]


def rows_with_branches(max_rows: int) -> SearchStrategy[list[Row]]:
    return _rows(max_rows)
