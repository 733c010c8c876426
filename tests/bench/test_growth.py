"""Costs that grow with the work and not with its square: the record of a run over its steps, lists over many runs."""

import json
import subprocess
import sys
import time
from math import log
from pathlib import Path
from statistics import linear_regression
from typing import Any

import pytest

from aworld_train.adapter.verl.framework import VerlFramework
from aworld_train.training.run_files import LOCK
from aworld_train.training.run_folder import RunFolder
from aworld_train.training.run_metrics import RunMetrics
from aworld_train.training.summary import RunSummary
from tests.run_folders import make_run

pytestmark = pytest.mark.bench

MAX_EXPONENT = 1.1
STEPS = (500, 1500, 4500)
EPISODES, FIGURES = 16, 120  # of a step
RUNS, RUN_STEPS = 500, 5000
MAX_LIST_RATIO = 4.0
"""Processor time of the list over that of a process that reads the same small files, both with their start."""
MAX_MEMORY = 150  # MiB
EPISODE = {
    "validate": False,
    "outcome": "answered",
    "treatment": "trained",
    "tool_calls": 1,
    "scorer": "math",
    "scoring": "scored",
    "rows": 1,
    "prompt_tokens": 10,
    "response_tokens": 30,
    "unique_tokens": 40,
    "sampled_tokens": 20,
    "reward": 1.0,
    "scores": {"acc": 1.0},
}


def record_seconds(path: Path, steps: int) -> float:
    """Processor time of the record of that many steps, with what the framework and the episodes report written."""
    (path / "traces").mkdir(parents=True)
    folder = RunFolder(path, VerlFramework(), (path / LOCK).open("a"))
    figures = {f"actor/figure{number}": number * 1.1 for number in range(FIGURES)}
    record = RunMetrics(folder, RunSummary("r", steps_planned=steps), path / "verl.jsonl", 0)
    began = time.process_time()
    for step in range(1, steps + 1):
        with folder.episodes.open("a") as file:
            for episode in range(EPISODES):
                file.write(json.dumps(EPISODE | {"step": step, "index": step * EPISODES + episode}) + "\n")
        with (path / "verl.jsonl").open("a") as file:
            file.write(json.dumps({"step": step, "data": {"actor/loss": 0.1} | figures}) + "\n")
        record.refresh(float(step))
    assert record.summary.episodes == steps * EPISODES
    return time.process_time() - began


def test_the_record_of_a_run_grows_with_its_steps(tmp_path: Path) -> None:
    seconds = [record_seconds(tmp_path / str(steps), steps) for steps in STEPS]
    for steps, each in zip(STEPS, seconds, strict=True):
        print(f"record of {steps} steps: {each:.2f} s, {each / steps * 1e3:.1f} ms a step")
    exponent = linear_regression([log(steps) for steps in STEPS], [log(each) for each in seconds]).slope
    print(f"exponent {exponent:.2f}")
    assert exponent <= MAX_EXPONENT


@pytest.fixture
def many_runs(tmp_path: Path) -> Path:
    """Runs of many steps, of which all have the same metrics."""
    runs = tmp_path / "runs"
    runs.mkdir()
    metrics = tmp_path / "metrics.jsonl"
    raw = {f"actor/figure{number}": number * 1.1 for number in range(FIGURES)}
    rows = ({"step": step, "reward": 0.5, "loss": 0.1, "verl": raw} for step in range(RUN_STEPS))
    metrics.write_text("".join(json.dumps(row) + "\n" for row in rows))
    for number in range(RUNS):
        folder = make_run(runs, f"run-{number}", model={"name": "tiny"})
        (folder / "metrics.jsonl").unlink()
        (folder / "metrics.jsonl").hardlink_to(metrics)
    return runs


AT_THE_END = """
import atexit, os, pathlib, re, sys

@atexit.register
def say():
    peak = re.search(r"VmHWM:\\s+(\\d+)", pathlib.Path("/proc/self/status").read_text())[1]
    print(sum(os.times()[:2]), int(peak) // 1024, file=sys.stderr)
"""
LISTING = """
from aworld_train.cli.main import main
sys.argv = ["", "runs", "list", "--json", "--runs", {runs!r}]
main()
"""
READER = """
import json
import typer, rich.table
files = sorted(pathlib.Path({runs!r}).glob("*/[sm][ua]*.json"))
print(len([json.loads(file.read_text()) for file in files]))
"""


def cost(program: str, runs: Path) -> tuple[float, int, Any]:
    """Processor time and memory (MiB) of a process, and the JSON that it prints."""
    command = [sys.executable, "-c", AT_THE_END + program.format(runs=str(runs))]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    seconds, memory = done.stderr.split()[-2:]
    return float(seconds), int(memory), json.loads(done.stdout)


def test_a_list_of_many_runs_reads_no_metrics(many_runs: Path) -> None:
    pairs = [(cost(LISTING, many_runs), cost(READER, many_runs)) for _ in range(3)]
    (seconds, memory, shown), (peer, _, files) = min(pairs, key=lambda pair: pair[0][0] / pair[1][0])
    print(
        f"runs list, {RUNS} runs of {RUN_STEPS} steps: {seconds:.2f} s, {memory} MiB; a reader {peer:.2f} s"
    )
    assert (len(shown["runs"]), files) == (RUNS, 2 * RUNS)
    assert seconds <= MAX_LIST_RATIO * peer
    assert memory <= MAX_MEMORY
