"""What the store costs a training step: the quickstart with it and without it, alternating; and its size on disk.

Each pair gives a ratio of the mean seconds of the steps after the first; the median of the ratios counts. The ratio of
the processor seconds of all processes is printed beside it: it says what the store costs where others use the machine.
"""

import contextlib
import json
import os
import shutil
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil
import pyarrow
import pyarrow.parquet
import pytest

from tests.e2e.conftest import Workspace, descendants, environments_of, wait_for

pytestmark = [pytest.mark.bench, pytest.mark.timeout(7200)]

PAIRS = int(os.environ.get("AWORLD_TRAIN_BENCH_PAIRS", "5"))
MAX_RATIO = 1.03
STEPS = 6
OVERRIDES = [
    f"trainer.steps={STEPS}",
    "trainer.val_every=100",
    "trainer.save_every=100",
    "dataset.val_limit=16",
]


@dataclass(frozen=True)
class StepCost:
    """What a step takes in the mean, without the first."""

    seconds: float
    processor_seconds: float


def step_cost(workspace: Workspace, keep: str) -> StepCost:
    name = f"store-{keep}"
    shutil.rmtree(workspace.runs / name, ignore_errors=True)
    overrides = [f"name={name}", f"store.keep={keep}", *OVERRIDES]
    process = workspace.start("train", "recipes/quickstart.yaml", "--quiet", *overrides)
    wait_for("first step", lambda: steps_done(workspace, name) >= 1, 1200, process)
    processor_seconds = -used_processor_seconds(process.pid)
    wait_for("last step", lambda: steps_done(workspace, name) >= STEPS, 1200, process)
    processor_seconds += used_processor_seconds(process.pid)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    seconds = statistics.mean(row["seconds"] for row in workspace.metrics(name) if row["step"] >= 2)
    return StepCost(seconds, processor_seconds / (STEPS - 1))


def steps_done(workspace: Workspace, name: str) -> int:
    if not (workspace.runs / name / "metrics.jsonl").exists():
        return 0
    return max((row["step"] for row in workspace.metrics(name)), default=0)


def used_processor_seconds(pid: int) -> float:
    """What a command and all processes of its run have used until now."""
    run = [psutil.Process(pid), *descendants(pid)]
    total = 0.0
    for process in [*run, *environments_of(run)]:
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


def test_the_store_costs_a_step_hardly_anything(workspace: Workspace, pytestconfig: pytest.Config) -> None:
    print_line = pytestconfig.get_terminal_writer().line
    ratios, processor_ratios = [], []
    for pair in range(PAIRS):
        order = ("all", "off") if pair % 2 else ("off", "all")
        costs = {keep: step_cost(workspace, keep) for keep in order}
        ratios.append(costs["all"].seconds / costs["off"].seconds)
        processor_ratios.append(costs["all"].processor_seconds / costs["off"].processor_seconds)
        print_line(f"\npair {pair + 1}: {costs}")
    for name, values in (("seconds", ratios), ("processor seconds", processor_ratios)):
        print_line(f"{name} with the store / without: {', '.join(f'{v:.3f}' for v in sorted(values))}")
        print_line(f"median {statistics.median(values):.3f}")
    print_sizes(workspace, print_line)
    assert statistics.median(ratios) <= MAX_RATIO


def print_sizes(workspace: Workspace, print_line: Callable[[str], None]) -> None:
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
        print_line(f"{name}: {bytes_ / episodes:,.0f} bytes an episode")
