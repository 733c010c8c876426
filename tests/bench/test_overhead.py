"""What the orchestrator costs: ours against raw ``python -m verl.trainer.main_ppo`` with the same resolved config.

Both use one environment that is up already, the same model and data, and alternate; each pair gives a ratio, and the
median of the ratios counts. "Time to the first step" is from the command to the line of step 1 in VeRL's own log.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from aworld_train.adapter.episodes.record import RUN_DIR_VARIABLE
from aworld_train.adapter.verl.command import verl_command, verl_environment
from aworld_train.adapter.verl.private_folder import PrivateFolder
from aworld_train.env import down, up
from aworld_train.recipe import load
from tests.e2e.conftest import Workspace

pytestmark = [pytest.mark.bench, pytest.mark.timeout(3600)]

PAIRS = int(os.environ.get("AWORLD_TRAIN_BENCH_PAIRS", "3"))
OVERRIDES = [
    "trainer.steps=6",
    "trainer.val_every=100",
    "trainer.save_every=100",
    "dataset.val_limit=16",
    "env.docker_dir=null",
]


def watch(process: "subprocess.Popen[bytes]", began: float, metrics: "list[Path]") -> tuple[float, float]:
    """Seconds to the line of step 1, and mean seconds of the later steps, from VeRL's own log."""
    first: float | None = None
    while process.poll() is None:
        if first is None and any(b'"step":1,' in file.read_bytes() for file in _existing(metrics)):
            first = time.monotonic() - began
        time.sleep(0.02)
    assert process.returncode == 0
    assert first is not None
    (file,) = _existing(metrics)
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    return first, statistics.mean(row["data"]["timing_s/step"] for row in rows if row["step"] >= 2)


def _existing(patterns: "list[Path]") -> list[Path]:
    return [file for pattern in patterns for file in pattern.parent.glob(pattern.name)]


def ours(workspace: Workspace, variables: dict[str, str]) -> tuple[float, float]:
    shutil.rmtree(workspace.runs / "ours", ignore_errors=True)
    train = ["train", "recipes/quickstart.yaml", "name=ours", "--quiet", *OVERRIDES]
    began = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "aworld_train", *train],
        cwd=workspace.path,
        env={**os.environ, **variables},
        stdout=subprocess.DEVNULL,
    )
    return watch(process, began, [workspace.runs / "ours" / "logs" / "verl-metrics-*.jsonl"])


def raw(workspace: Workspace, variables: dict[str, str]) -> tuple[float, float]:
    """The same files that ours ran with, in a folder of their own, without anything of ours around it."""
    run_dir = workspace.runs / "raw"
    shutil.rmtree(run_dir, ignore_errors=True)
    (run_dir / "traces" / "validation").mkdir(parents=True)
    for file in (workspace.runs / "ours").glob("*.yaml"):
        text = file.read_text().replace(str(workspace.runs / "ours"), str(run_dir))
        (run_dir / file.name).write_text(text)
    # Short, for Ray's sockets lie below it.
    private = PrivateFolder(Path(tempfile.mkdtemp(prefix="aworld-", dir="/tmp")))
    private.fill()
    recipe = load("recipes/quickstart.yaml", [f"model.path={workspace.path / 'models/tiny'}"])
    environment = {
        **os.environ,
        **verl_environment(recipe, run_dir / "metrics.jsonl", private),
        **variables,
        RUN_DIR_VARIABLE: str(run_dir),
    }
    try:
        with (run_dir / "log").open("wb") as log:
            began = time.monotonic()
            python, no_path, as_module, _, *arguments = verl_command(run_dir)
            raw = [python, no_path, as_module, "verl.trainer.main_ppo", *arguments]
            process = subprocess.Popen(raw, cwd=run_dir, env=environment, stdout=log, stderr=log)
            return watch(process, began, [run_dir / "metrics.jsonl"])
    finally:
        shutil.rmtree(private.path, ignore_errors=True)


def test_the_orchestrator_costs_next_to_nothing(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWORLD_TRAIN_STATE", str(workspace.path / "state"))
    connection = up("calculator-mcp-server", name="bench", backend="process", owner_pid=os.getpid())
    variables = {"MCP_SERVER_URL": connection.mcp_url, "MCP_SERVER_TOKEN": connection.token}
    try:
        pairs = [(ours(workspace, variables), raw(workspace, variables)) for _ in range(PAIRS)]
    finally:
        down("bench")
    starts = [mine[0] / theirs[0] for mine, theirs in pairs]
    steps = [mine[1] / theirs[1] for mine, theirs in pairs]
    for (mine, theirs), start, step in zip(pairs, starts, steps, strict=True):
        print(
            f"to step 1: {mine[0]:.1f} s against {theirs[0]:.1f} s, ratio {start:.3f}; "
            f"a step: {mine[1]:.2f} s against {theirs[1]:.2f} s, ratio {step:.3f}"
        )
    print(f"median ratios: to step 1 {statistics.median(starts):.3f}, a step {statistics.median(steps):.3f}")
    assert statistics.median(starts) <= 1.05
    assert statistics.median(steps) <= 1.03
