"""What a dataset of 200,000 GAIA-shaped rows costs, against how such files are made otherwise, and in memory.

Ours reads, checks every row, merges repeats, sorts into a seeded order and hashes what it read and wrote; the peers
only convert. Every run is a process of its own, its start and imports included, and the best of several counts.
"""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq
import pytest

from tests.bench.gaia_rows import write_gaia_rows

ROWS = int(os.environ.get("AWORLD_TRAIN_BENCH_ROWS", "200000"))
RUNS = 3
MOST_MEMORY = 500 * 2**20
TIMES_PANDAS, TIMES_DATASETS = 5.0, 2.0


class Cost(NamedTuple):
    """What the best of several runs took: seconds, and bytes of memory at its peak."""

    seconds: float
    memory: int


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gaia") / "in.jsonl"
    write_gaia_rows(path, ROWS)
    return path


@pytest.mark.bench
@pytest.mark.timeout(1200)
def test_a_build_is_several_times_quicker_than_converting_row_by_row(source: Path, tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    pytest.importorskip("datasets")
    # By turns, so that what else the machine does falls on all.
    found: dict[str, list[Cost]] = {"ours": [], "pandas": [], "datasets": []}
    for run in range(RUNS):
        for peer, costs in found.items():
            folder = tmp_path / f"{peer}-{run}"
            folder.mkdir()
            costs.append(cost(peer, source, folder))
    best = {peer: min(costs) for peer, costs in found.items()}
    memory = max(run.memory for run in found["ours"])
    print(
        f"\n{ROWS} rows:",
        {peer: f"{run.seconds:.2f} s, {run.memory >> 20} MiB" for peer, run in best.items()},
    )
    rows = by_id(tmp_path / "ours-0" / "ours" / "train.parquet")
    for peer in ("pandas", "datasets"):
        assert by_id(tmp_path / f"{peer}-0" / "train.parquet").equals(rows)
    assert memory <= MOST_MEMORY
    assert best["datasets"].seconds >= TIMES_DATASETS * best["ours"].seconds
    assert best["pandas"].seconds >= TIMES_PANDAS * best["ours"].seconds


@pytest.mark.bench
@pytest.mark.timeout(600)
def test_memory_does_not_grow_with_the_data(source: Path, tmp_path: Path) -> None:
    large = tmp_path / "in.jsonl"
    write_gaia_rows(large, 3 * ROWS, seed=1)
    assert cost("ours", large, tmp_path).memory <= MOST_MEMORY


def cost(peer: str, source: Path, folder: Path) -> Cost:
    command = [sys.executable, "-m", "tests.bench.dataset_peers", peer, str(source), str(folder)]
    started = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    seconds = time.perf_counter() - started
    assert done.returncode == 0, done.stderr
    return Cost(seconds, int(done.stdout.split()[-1]) * 1024)


def by_id(path: Path) -> Any:
    """What all must agree on, in the order of the ids: all but the order of the rows."""
    table = pq.read_table(path, columns=["prompt", "reward_model", "extra_info", "data_source"])
    info = table["extra_info"].combine_chunks()
    fields = ("id", "line", "question", "scorer", "answer_schema", "level")
    columns = {name: info.field(name) for name in fields}
    contents = pa.compute.list_flatten(table["prompt"].combine_chunks()).field("content")
    columns["system"], columns["user"] = contents[::2], contents[1::2]
    columns["answer"] = table["reward_model"].combine_chunks().field("ground_truth")
    return pa.table({name: values.cast(pa.string()) for name, values in columns.items()}).sort_by("id")
