"""Contents of episodes: tokens and log-probabilities come back as they were, and rows are paths."""

import math

from hypothesis import given
from hypothesis import strategies as st

from aworld_train.store.content import (
    EpisodeContent,
    StoredAgent,
    StoredNode,
    StoredRow,
    decoded_content,
    encoded,
    packed_floats,
    packed_tokens,
    unpacked_floats,
)
from tests.stored_runs import row_mask, row_tokens


@given(st.lists(st.integers(0, 2**31 - 1), max_size=50))
def test_token_ids_come_back(tokens: list[int]) -> None:
    assert StoredNode(tokens=packed_tokens(tokens)).token_ids == tokens


@given(st.lists(st.floats(allow_nan=False), max_size=50))
def test_floats_come_back_exactly(values: list[float]) -> None:
    assert unpacked_floats(packed_floats(values)) == values


@given(st.lists(st.floats(allow_nan=False, width=32), max_size=50))
def test_floats_of_an_engine_take_four_bytes(values: list[float]) -> None:
    packed = packed_floats(values)
    assert len(packed) == 1 + 4 * len(values)
    assert unpacked_floats(packed) == values


def test_what_is_not_a_number_comes_back() -> None:
    first, second = unpacked_floats(packed_floats([math.nan, -math.inf]))
    assert math.isnan(first) and second == -math.inf


def test_the_mask_of_a_row_covers_its_own_nodes_alone() -> None:
    nodes = (
        StoredNode(-1, tokens=packed_tokens([1, 2, 3]), token_count=3),
        StoredNode(0, tokens=packed_tokens([4, 5]), token_count=2, logprobs=packed_floats([-0.5, -0.25])),
        StoredNode(1, tokens=packed_tokens([6]), token_count=1),
        StoredNode(2, tokens=packed_tokens([7]), token_count=1, logprobs=packed_floats([-1.0])),
    )
    rows = (StoredRow(0, (0, 1, 2, 3), (3,), 2),)
    content = decoded_content(encoded(EpisodeContent((StoredAgent("agent", nodes),), rows=rows)))
    assert row_tokens(content, 0) == [1, 2, 3, 4, 5, 6, 7]
    assert row_mask(content, 0) == [0, 0, 0, 0, 0, 0, 1]
    assert content.agents[0].path(3) == [0, 1, 2, 3]
