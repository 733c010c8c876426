"""JSON lines that are read many at once give the same tasks as read one by one, in any mixture."""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aworld_train.dataset import build
from aworld_train.dataset.sources import SourceOptions, json_tables
from aworld_train.dataset.sources import jsonl as source
from aworld_train.dataset.tasks import Dropped, Task, TaskTable
from aworld_train.errors import UsageError
from tests.task_tables import one_by_one

_VALUES = st.sampled_from(
    [
        *("a", " B ", "", "?", "é\u2028", None, True, 1, -2.50, 10**30),
        *([], ["x.csv"], {"role": "user"}, [{"role": "user", "content": "c"}]),
        [{"role": "system", "content": "s"}, {"role": "user", "content": "c"}],
    ]
)
_PLAIN = st.fixed_dictionaries(
    {
        "id": st.integers(0, 5).map(str),
        "query": st.sampled_from(["q", "Q  q", " r ", "ß"]),
        "answer": st.sampled_from(["a", 1, "b "]),
        "level": st.sampled_from([1, "2", None]),
        "attachments": st.sampled_from(["", "x.csv", "/y"]),
        "more": _VALUES,
    }
)
_ODD = st.dictionaries(
    st.sampled_from(["id", "query", "answer", "level", "scorer", "system", "attachments", "more", 'a"\\b']),
    _VALUES,
)
_RAW = st.sampled_from(
    [
        *(b"", b" ", b"nonsense", b"[1]", b"\xff", b'{"query": "q", "answer": NaN}'),
        b'{"query": "q", "query": "twice", "answer": "a", "id": "0", "level": 1, "attachments": "", "more": 1}',
        b'{"more": 1, "attachments": "", "answer": "a", "level": 1, "id": "0", "query": "in another order"}',
        b'{"query": "q", "answer": 1.50, "id": "9", "level": 1, "attachments": "", "more": "\xff"}',
    ]
)
_LINES = st.lists(
    _PLAIN.map(lambda row: json.dumps(row).encode())
    | _ODD.map(lambda row: json.dumps(row).encode()).filter(lambda line: b"scorer" not in line)
    | _RAW,
    max_size=40,
)
FIRST = b'{"query": "first", "answer": "a", "id": "0", "level": 1, "attachments": "", "more": 0}'


@given(
    _LINES, st.integers(1, 9), st.sampled_from([{}, {"system": "s"}, {"levels": ("2",)}, {"scorer": "f1"}])
)
def test_lines_say_the_same_read_many_at_once_or_one_by_one(
    lines: list[bytes], length: int, options: dict[str, object]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "tasks.jsonl")
        path.write_bytes(b"".join(line + b"\n" for line in [FIRST, *lines]))
        source_options = SourceOptions(files=(str(path),), **options)  # type: ignore[arg-type]
        with patch.object(json_tables, "_RUN_LINES", length):
            at_once = one_by_one(source.jsonl(source_options))
        with patch.object(source.Tables, "read", lambda tables, run: None):
            singly = list(source.jsonl(source_options))
    assert not any(isinstance(item, TaskTable) for item in singly)
    assert at_once == singly
    assert [item.line for item in at_once] == list(range(1, len(lines) + 2))


def written(path: Path, odd: dict[int, bytes], count: int = 5000) -> Path:
    """A file of plain lines but for those that are odd, by their number."""
    plain = (
        json.dumps({"id": n, "query": f"What is {n}?", "answer": n}).encode() for n in range(1, count + 1)
    )
    path.write_bytes(b"".join(odd.get(n, line) + b"\n" for n, line in enumerate(plain, 1)))
    return path


def test_only_the_runs_with_an_odd_line_are_read_one_by_one(tmp_path: Path) -> None:
    odd = {1500: b"nonsense", 4500: b'{"id": 7, "query": "q", "answer": "other"}'}
    items = list(source.jsonl(SourceOptions(files=(str(written(tmp_path / "in.jsonl", odd)),))))
    dropped = [(item.line, item.reason) for item in items if isinstance(item, Dropped)]
    assert dropped == [(1500, "not JSON"), (4500, "id of another row with other content")]
    singly = [item.line for item in items if isinstance(item, Task)]
    assert (singly[0], singly[-1]) == (1025, 5000) and 2049 not in singly
    assert sum(len(item) for item in items if isinstance(item, TaskTable)) == 3 * 1024
    assert [item.line for item in one_by_one(items)] == list(range(1, 5001))


def test_a_run_is_bounded_in_bytes() -> None:
    def lines() -> Iterator[tuple[int, bytes | None]]:
        for number in range(1, 11):
            yield number, None if number == 5 else b"x" * (json_tables._RUN_BYTES // 2)

    assert [[number for number, _ in run] for run in json_tables.runs(lines())] == [
        [1, 2, 3],
        [4, 5, 6, 7],
        [8, 9, 10],
    ]


def test_an_ambiguous_column_is_named_with_its_line_wherever_it_stands(tmp_path: Path) -> None:
    path = written(tmp_path / "in.jsonl", {3000: b'{"problem": "a", "input": "b", "answer": "c"}'})
    with pytest.raises(UsageError, match=r"line 3000: 'problem' and 'input' could each be the query"):
        list(source.jsonl(SourceOptions(files=(str(path),))))


def test_a_dataset_has_the_same_bytes_either_way(tmp_path: Path) -> None:
    odd = dict.fromkeys((1, 2, 77, 5000), b'{"id": 3, "query": "q", "answer": "?"}')
    odd |= {
        4: b'{"query": " WHAT  is 3? ", "answer": "3", "scorer": "f1"}',
        9: b'{"query": "What is 3?", "answer": "4"}',
    }
    path = written(tmp_path / "in.jsonl", odd)
    build("jsonl", tmp_path / "at-once", files=[path])
    with patch.object(source.Tables, "read", lambda tables, run: None):
        build("jsonl", tmp_path / "singly", files=[path])
    files = sorted(file.name for file in (tmp_path / "singly").iterdir())
    assert files == ["dataset.json", "dropped.jsonl", "train.parquet", "val.parquet"]
    for name in files:
        assert (tmp_path / "at-once" / name).read_bytes() == (tmp_path / "singly" / name).read_bytes()
