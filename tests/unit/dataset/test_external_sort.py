"""Sorting on disk gives the same order as sorting in memory, with each task once."""

from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aworld_train.dataset.columns import FLAT, FamilyIndex, to_columns
from aworld_train.dataset.external_sort import Spool
from aworld_train.dataset.tasks import Task, TaskKind
from tests.properties import examples


def task(text: str, line: int) -> Task:
    return Task(
        data_source="test",
        ability="any",
        kind=TaskKind.question,
        subject=text,
        message=f"Say: {text}",
        answer="1",
        scorer="exact",
        answer_schema="answer",
        line=line,
    )


def batches(texts: list[str], size: int) -> list[pa.RecordBatch]:
    families = FamilyIndex()
    tasks = [task(text, line) for line, text in enumerate(texts)]
    return [to_columns(tasks[i : i + size], 0, families, 7) for i in range(0, len(tasks), size)]


def in_order(spool: Spool) -> list[tuple[bytes, int]]:
    rows: list[tuple[bytes, int]] = []
    for part in spool.parts():
        taken = part.batch.take(pa.array(part.order))
        rows += zip(taken.column("digest").to_pylist(), taken.column("line").to_pylist(), strict=True)
    return rows


@examples(25)
@given(
    st.lists(st.text("abcd", min_size=1, max_size=2), max_size=120),
    st.integers(1, 40),
    st.integers(1, 20_000),
)
def test_tasks_come_back_in_order_of_digest_and_repeats_in_order_of_coming(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], size: int, bound: int
) -> None:
    spool = Spool(tmp_path_factory.mktemp("spool"), max_held_bytes=bound, run_bytes=bound // 2 + 1)
    for batch in batches(texts, size):
        spool.add(batch)
    rows = in_order(spool)
    assert rows == sorted(rows)
    assert sorted(line for _, line in rows) == list(range(len(texts)))
    assert in_order(spool) == rows


def test_what_fits_into_memory_is_not_written(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool")
    for batch in batches([str(i) for i in range(100)], 10):
        spool.add(batch)
    assert len(in_order(spool)) == 100
    assert not (tmp_path / "spool").exists()


def test_a_part_holds_no_more_than_it_may_even_where_digests_begin_alike(tmp_path: Path) -> None:
    (batch,) = batches([str(i) for i in range(2000)], 2000)
    # As if all began with the same byte.
    alike = [b"\0" + digest[1:] for digest in batch.column("digest").to_pylist()]
    columns = [pa.array(alike, pa.binary(32)), *batch.columns[1:]]
    spool = Spool(tmp_path / "spool", max_held_bytes=batch.nbytes // 8, run_bytes=batch.nbytes // 8)
    spool.add(pa.RecordBatch.from_arrays(columns, schema=FLAT))
    parts = list(spool.parts())
    assert sum(len(part.batch) for part in parts) == 2000
    assert max(part.batch.nbytes for part in parts) <= batch.nbytes // 4
    digests = [part.batch.column("digest").take(pa.array(part.order)).to_pylist() for part in parts]
    assert all(before[-1] < after[0] for before, after in pairwise(digests))
