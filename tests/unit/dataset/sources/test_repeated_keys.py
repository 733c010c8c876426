"""A key that comes twice is found wherever it stands, and no other line is taken for one."""

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aworld_train.dataset.sources.jsonl import jsonl
from aworld_train.dataset.sources.options import SourceOptions
from aworld_train.dataset.sources.repeated_keys import repeated_key
from aworld_train.dataset.tasks import Dropped
from tests.task_tables import one_by_one

_NAMES = st.sampled_from(["query", "answer", "x", "a:b", "", "é"])
_TEXTS = st.sampled_from(['"q"', '"a: b"', '"\\u003a"', '"\\"x\\": 1"', "7", "null", '[": "]'])
_PAIRS = st.lists(st.tuples(_NAMES, st.sampled_from([":", " : ", "\t:"]), _TEXTS), max_size=5)
_NESTED = _PAIRS.map(lambda pairs: "{" + ",".join(f"{json.dumps(n)}{c}{t}" for n, c, t in pairs) + "}")
_LINES = st.lists(st.tuples(_NAMES, st.sampled_from([":", " : "]), _TEXTS | _NESTED), min_size=1, max_size=4)


@given(st.lists(_LINES, min_size=1, max_size=4))
def test_a_line_is_dropped_for_a_key_exactly_where_it_has_one_twice(
    lines: list[list[tuple[str, str, str]]],
) -> None:
    texts = ["{" + ",".join(f"{json.dumps(n)}{c}{t}" for n, c, t in pairs) + "}" for pairs in lines]
    # All lines with the columns of the first, so that they are read as a table.
    texts = ['{"query": "q", "answer": "a"}', *texts]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "in.jsonl")
        path.write_text("".join(f"{text}\n" for text in texts))
        items = one_by_one(jsonl(SourceOptions(files=(str(path),))))
    for text, item in zip(texts, items, strict=True):
        found = isinstance(item, Dropped) and item.reason.endswith("comes twice")
        assert found == (plainly_repeated(text) is not None), (text, item)


def plainly_repeated(text: str) -> str | None:
    """The key that a line has twice, itself or in the columns that are used."""
    found: list[str] = []

    def pairs(items: list[tuple[str, object]]) -> dict[str, object]:
        names = [name for name, _ in items]
        twice = [name for name in names if names.count(name) > 1]
        inside = [value for name, value in items if name in ("query", "answer")]
        return {"names": names, "twice": twice, "inside": inside}

    def visit(value: object) -> None:
        if isinstance(value, dict):
            found.extend(value["twice"])

    record = json.loads(text, object_pairs_hook=pairs)
    visit(record)
    for value in record["inside"]:
        visit(value)
    return found[0] if found else None


@pytest.mark.parametrize("position", [0, 700, 1500])
def test_one_line_among_many_is_found_and_the_others_stay_tasks(position: int, tmp_path: Path) -> None:
    lines = [json.dumps({"query": f"What: {n}?", "answer": n, "notes": {"x": ":"}}) for n in range(2000)]
    lines[position] = '{"query": "q", "answer": "a", "notes": {}, "answer": "b"}'
    (tmp_path / "in.jsonl").write_text("".join(f"{line}\n" for line in lines))
    items = one_by_one(jsonl(SourceOptions(files=(str(tmp_path / "in.jsonl"),))))
    dropped = [(item.line, item.reason) for item in items if isinstance(item, Dropped)]
    assert dropped == [(position + 1, "the key 'answer' comes twice")] and len(items) == 2000


def test_a_column_that_is_not_used_may_hold_what_it_likes() -> None:
    raw = b'{"query": "q", "answer": "a", "notes": {"x": 1, "x": 2}}'
    assert repeated_key(raw, {"query", "answer"}) is None
    assert repeated_key(raw, {"query", "answer", "notes"}) == "x"
