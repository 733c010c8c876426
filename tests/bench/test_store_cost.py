"""What the store costs a training step: the quickstart, with it in every other step; and its size on disk.

The steps of one run alternate, because the speed of a machine drifts by more than the store costs: whole runs without
a store, one after the other, took 6 to 10 seconds a step. Each pair of neighbouring steps gives a ratio of their
seconds, and the median of the ratios counts.
"""

import json
import os
import sqlite3
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from tests.bench.store_every_other_step.sitecustomize import has_store
from tests.e2e.conftest import Workspace

pytestmark = [pytest.mark.bench, pytest.mark.timeout(7200)]

PAIRS = int(os.environ.get("AWORLD_TRAIN_BENCH_PAIRS", "100"))
MAX_RATIO = 1.03
FIRST = 2  # the first step takes longer, and the last saves a checkpoint: neither is in a pair
STEPS = FIRST + 2 * PAIRS
NAME = "store-cost"
OVERRIDES = [
    f"name={NAME}",
    f"trainer.steps={STEPS}",
    f"trainer.val_every={STEPS}",
    f"trainer.save_every={STEPS}",
    "dataset.val_limit=16",
]


def test_the_store_costs_a_step_hardly_anything(workspace: Workspace, pytestconfig: pytest.Config) -> None:
    print_line = pytestconfig.get_terminal_writer().line
    process = workspace.start(
        "train",
        "recipes/quickstart.yaml",
        "--quiet",
        *OVERRIDES,
        python=Path(sys.executable),
        also=Path(__file__).parent / "store_every_other_step",
    )
    _, errors = process.communicate(timeout=7000)
    assert process.returncode == 0, errors
    database = sqlite3.connect(workspace.runs / NAME / "store" / "episodes.db")
    with_store = [step for step in range(1, STEPS + 1) if has_store(step)]
    assert kept_steps(database, "step") == kept_steps(database, "trained_step") == with_store

    seconds = {row["step"]: row["seconds"] for row in workspace.metrics(NAME) if row["step"] >= FIRST}
    ratios = []
    for step in range(FIRST, STEPS, 2):
        kept, other = (step, step + 1) if has_store(step) else (step + 1, step)
        ratios.append(seconds[kept] / seconds[other])
    median, (low, high) = statistics.median(ratios), interval(ratios)
    for kept in (True, False):
        mean = statistics.mean(s for step, s in seconds.items() if has_store(step) is kept and step < STEPS)
        print_line(f"\n{'with' if kept else 'without'} the store: {mean:.2f} s a step in the mean")
    print_line(f"with / without, {PAIRS} pairs of steps: median {median:.3f} ({low:.3f} to {high:.3f})")
    print_sizes(workspace, database, print_line)
    assert median <= MAX_RATIO


def kept_steps(database: sqlite3.Connection, column: str) -> list[int]:
    """The steps of the episodes in the store that were played to train."""
    rows = database.execute(f"SELECT DISTINCT {column} FROM episodes WHERE phase = 'train' ORDER BY 1")
    return [step for (step,) in rows]


def interval(ratios: Sequence[float]) -> tuple[float, float]:
    """The 95 % interval of a median, from 10,000 samples with replacement."""
    samples = np.random.default_rng(0).choice(ratios, (10_000, len(ratios)))
    low, high = np.quantile(np.median(samples, axis=1), (0.025, 0.975))
    return float(low), float(high)


def print_sizes(
    workspace: Workspace, database: sqlite3.Connection, print_line: Callable[[str], None]
) -> None:
    """Print the bytes of an episode in the store, as JSON lines, and as one Zstandard file of these."""
    run = workspace.runs / NAME
    done = workspace.run("runs", "export", NAME, "--format", "parquet", "--out", str(run / "all.parquet"))
    assert done.returncode == 0, done.stderr
    lines = Path(run / "all.jsonl")
    with lines.open("w") as file:
        for row in pyarrow.parquet.read_table(run / "all.parquet").to_pylist():
            file.write(json.dumps(row, default=str) + "\n")
    (episodes,) = database.execute("SELECT count(*) FROM episodes").fetchone()
    text = lines.read_bytes()
    sizes = {
        "store": (run / "store" / "episodes.db").stat().st_size,
        "JSON lines": len(text),
        "one Zstandard file": len(pyarrow.compress(text, codec="zstd", asbytes=True)),
    }
    for name, bytes_ in sizes.items():
        print_line(f"{name}: {bytes_ / episodes:,.0f} bytes an episode")
