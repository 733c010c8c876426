"""What a dataset of 200,000 GAIA-shaped rows costs, against how such files are made otherwise, and in memory.

Ours reads, checks every row, merges repeats, sorts into a seeded order and hashes what it read and wrote; the peers
only convert. Every run is a process of its own, its start and imports included, and the best of several counts. Ours
is held against those that go row by row, as most scripts do: `pandas.DataFrame.iterrows` and `datasets.map`. Quicker
ways to use the same libraries are measured and printed too.
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

from tests.bench.dataset_peers import PEERS
from tests.bench.gaia_rows import write_gaia_rows

ROWS = int(os.environ.get("AWORLD_TRAIN_BENCH_ROWS", "200000"))
OUR_RUNS, PEER_RUNS = 4, 2
MAX_MEMORY = 500 * 2**20
TIMES = {"pandas iterrows": 5.0, "datasets map": 2.0}


class Cost(NamedTuple):
    """What a run took: seconds, seconds of processor time, and bytes of memory at its peak, of all its processes."""

    seconds: float
    processor: float
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
    found: dict[str, list[Cost]] = {peer: [] for peer in PEERS}
    # By turns, so that what else the machine does falls on all.
    for run in range(OUR_RUNS):
        for peer, costs in found.items():
            if peer == "ours" or run < PEER_RUNS:
                folder = tmp_path / f"{peer}-{run}"
                folder.mkdir()
                costs.append(cost(peer, source, folder))
    best = {peer: min(costs) for peer, costs in found.items()}
    ours = best["ours"]
    print(f"\n{ROWS} rows, best of {OUR_RUNS} runs, of peers {PEER_RUNS}:")
    for peer, run in best.items():
        print(
            f"{peer:22} {run.seconds:6.2f} s, {run.processor:6.2f} s of processor time, {run.memory >> 20:5} MiB; "
            f"{run.seconds / ours.seconds:5.2f} times ours, {run.processor / ours.processor:5.2f} in processor time"
        )
    rows = by_id(tmp_path / "ours-0" / "ours" / "train.parquet")
    for peer in found.keys() - {"ours"}:
        assert by_id(tmp_path / f"{peer}-0" / "train.parquet").equals(rows), peer
    assert max(run.memory for run in found["ours"]) <= MAX_MEMORY
    for peer, times in TIMES.items():
        assert best[peer].seconds >= times * ours.seconds, peer


@pytest.mark.bench
@pytest.mark.timeout(600)
def test_memory_does_not_grow_with_the_data(source: Path, tmp_path: Path) -> None:
    large = tmp_path / "in.jsonl"
    write_gaia_rows(large, 3 * ROWS, seed=1)
    found = cost("ours", large, tmp_path)
    print(f"\n{3 * ROWS} rows: {found.seconds:.2f} s, {found.memory >> 20} MiB")
    assert found.memory <= MAX_MEMORY


def cost(peer: str, source: Path, folder: Path) -> Cost:
    command = [sys.executable, "-m", "tests.bench.dataset_peers", peer, str(source), str(folder)]
    started = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    seconds = time.perf_counter() - started
    assert done.returncode == 0, done.stderr
    memory, processor = done.stdout.split()[-2:]
    return Cost(seconds, float(processor), int(memory))


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
