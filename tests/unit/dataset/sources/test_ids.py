"""The memory of ids finds the same conflicts as a dict, one by one and many at once, and takes little for each id."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aworld_train.dataset.sources import ids
from aworld_train.dataset.sources.ids import IdMemory

RECORDS = st.lists(st.tuples(st.sampled_from(["", *map(str, range(40))]), st.integers(0, 3)), max_size=60)


@given(st.lists(st.tuples(st.booleans(), RECORDS), max_size=6))
def test_conflicts_are_those_of_a_dict(runs: list[tuple[bool, list[tuple[str, int]]]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        # So small that ids meet in one slot, and that the table grows.
        patch.setattr(ids, "_MIN_SLOTS", 4)
        memory, contents = IdMemory(), dict[str, int]()
        for at_once, records in runs:
            if at_once:
                expected = [contents.setdefault(id, content) != content for id, content in records if id]
                assert memory.has_conflict(*_columns(records)) == any(expected)
            for id, content in records:
                if id:
                    assert memory.is_conflict(id, content) == (contents.setdefault(id, content) != content)


def _columns(records: list[tuple[str, int]]) -> tuple[list[str], list[int]]:
    return [id for id, _ in records], [content for _, content in records]


@pytest.mark.parametrize("at_once", [False, True])
def test_an_id_takes_no_more_than_the_docstring_says(at_once: bool) -> None:
    count = 300_000
    tracemalloc.start()
    try:
        memory = IdMemory()
        for start in range(0, count, 1000):
            records = [(f"row-{number}", hash(number)) for number in range(start, start + 1000)]
            if at_once:
                assert not memory.has_conflict(*_columns(records))
            else:
                assert not any(memory.is_conflict(id, content) for id, content in records)
        assert tracemalloc.get_traced_memory()[0] < 48 * count
    finally:
        tracemalloc.stop()
    assert memory.is_conflict("row-7", 1) and not memory.is_conflict("row-7", hash(7))
