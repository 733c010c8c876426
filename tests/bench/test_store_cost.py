"""What the store costs a training step: the quickstart with it and without it, alternating; and its size on disk.

Each pair gives a ratio of the mean seconds of the steps after the first; the median of the ratios counts.
"""

import json
import os
import shutil
import statistics
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from tests.e2e.conftest import Workspace

pytestmark = [pytest.mark.bench, pytest.mark.timeout(7200)]

PAIRS = int(os.environ.get("AWORLD_TRAIN_BENCH_PAIRS", "5"))
MAX_RATIO = 1.03
OVERRIDES = ["trainer.steps=6", "trainer.val_every=100", "trainer.save_every=100", "dataset.val_limit=16"]


def seconds_a_step(workspace: Workspace, keep: str) -> float:
    name = f"store-{keep}"
    shutil.rmtree(workspace.runs / name, ignore_errors=True)
    overrides = [f"name={name}", f"store.keep={keep}", *OVERRIDES]
    done = workspace.run("train", "recipes/quickstart.yaml", "--quiet", *overrides, seconds=1200)
    assert done.returncode == 0, done.stderr
    return statistics.mean(row["seconds"] for row in workspace.metrics(name) if row["step"] >= 2)


def test_the_store_costs_a_step_hardly_anything(workspace: Workspace, pytestconfig: pytest.Config) -> None:
    ratios = []
    for pair in range(PAIRS):
        order = ("all", "off") if pair % 2 else ("off", "all")
        seconds = {keep: seconds_a_step(workspace, keep) for keep in order}
        ratios.append(seconds["all"] / seconds["off"])
    writer = pytestconfig.get_terminal_writer()
    writer.line(
        f"\nwith the store / without, a step: {', '.join(f'{ratio:.2f}' for ratio in sorted(ratios))}"
    )
    writer.line(f"median {statistics.median(ratios):.3f}")
    size(workspace, writer)
    assert statistics.median(ratios) <= MAX_RATIO


def size(workspace: Workspace, writer: object) -> None:
    """Print the bytes of an episode in the store, as JSON lines, and as one Zstandard file of these."""
    run = workspace.runs / "store-all"
    done = workspace.run(
        "runs", "export", "store-all", "--format", "parquet", "--out", str(run / "all.parquet")
    )
    assert done.returncode == 0, done.stderr
    lines = Path(run / "all.jsonl")
    with lines.open("w") as file:
        for row in pyarrow.parquet.read_table(run / "all.parquet").to_pylist():
            file.write(json.dumps(row, default=str) + "\n")
    episodes = len(workspace.episodes("store-all"))
    text = lines.read_bytes()
    sizes = {
        "store": (run / "store" / "episodes.db").stat().st_size,
        "JSON lines": len(text),
        "one Zstandard file": len(pyarrow.compress(text, codec="zstd", asbytes=True)),
    }
    for name, bytes_ in sizes.items():
        writer.line(f"{name}: {bytes_ / episodes:,.0f} bytes an episode")  # type: ignore[attr-defined]
