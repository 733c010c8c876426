"""What a build holds in memory hardly grows with its rows: less than a tenth of what the rows have."""

import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from aworld_train.dataset import build, builder, writing
from aworld_train.dataset.external_sort import Spool
from aworld_train.dataset.sources.columns import Columns
from aworld_train.dataset.sources.parquet import parquet_records
from tests.word_problems import problems, write_csv, write_jsonl, write_parquet

MAX_BYTES_PER_ROW = 50

WRITERS: dict[str, Callable[[Path, Iterator[tuple[str, str, str]]], None]] = {
    "jsonl": write_jsonl,
    "csv": write_csv,
    "parquet": write_parquet,
}


@pytest.mark.parametrize("source", WRITERS)
def test_memory_hardly_grows_with_the_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    # Bounds that a small dataset reaches.
    monkeypatch.setattr(builder, "Spool", partial(Spool, max_held_bytes=1 << 20, run_bytes=1 << 19))
    monkeypatch.setattr(writing, "ROW_GROUP_ROWS", 256)
    few, many = 5_000, 20_000
    peaks = []
    for count in (few, many):
        path = tmp_path / f"{count}.{source}"
        WRITERS[source](path, problems(count, repeated=0.1))
        peaks.append(_peak(partial(build, source, tmp_path / f"out-{count}", files=[path])))
    assert (peaks[1] - peaks[0]) / (many - few) < MAX_BYTES_PER_ROW


def test_reading_parquet_holds_a_small_part_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "in.parquet"
    write_parquet(path, problems(40_000), compression="none")
    before = pa.total_allocated_bytes()
    held = max(pa.total_allocated_bytes() - before for _ in parquet_records(path, Columns({}).table_plan))
    assert 0 < held < path.stat().st_size / 3


def _peak(run: Callable[[], object]) -> int:
    """The most bytes that Python and arrow have at a time while a function runs, if not at the same time."""
    pool, before = pa.proxy_memory_pool(pa.default_memory_pool()), pa.default_memory_pool()
    pa.set_memory_pool(pool)
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1] + int(pool.max_memory())
    finally:
        tracemalloc.stop()
        pa.set_memory_pool(before)
