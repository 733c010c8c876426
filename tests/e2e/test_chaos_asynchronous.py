"""Processes of asynchronous runs are killed: a sampler is replaced, and after any other the run continues by --resume.

Whatever was killed, each step is once in the metrics, and no episode is trained on twice.
"""

import random
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pytest

from aworld_train.training.recorded_run import open_run
from aworld_train.training.run_store import open_run_store
from tests.e2e.conftest import (
    REPOSITORY,
    SMALL,
    Workspace,
    assert_all_gone,
    descendants,
    environments_of,
    find,
    wait_for,
)
from tests.e2e.test_asynchronous import compared
from tests.e2e.test_chaos import MAX_SECONDS, TARGETS

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

SEED = 42
TASKS, EPISODES, BOUND = 4, 4, 2
MODES = {
    "colocate_async": [],
    "separate_async": ["rollout.samplers=2"],
}
ROUNDS = {
    "colocate_async": ["the trainer", "VeRL's driver", "the episode worker", "the engine", "the command"],
    "separate_async": ["the engine", "the trainer", "the engine", "VeRL's driver", "the episode worker"],
}
"""Which process is killed in each round; with separate_async the engine is a sampler."""


def command(name: str, mode: str, steps: int) -> list[str]:
    return [
        *("train", "recipes/quickstart.yaml", f"name={name}", *SMALL, f"trainer.mode={mode}", *MODES[mode]),
        *("dataset.val_limit=4", f"trainer.steps={steps}", f"trainer.val_every={steps}"),
        *(f"trainer.batch_size={TASKS}", f"rollout.n={EPISODES}", "trainer.microbatch_size=8"),
        *(f"trainer.async.staleness={BOUND}", f"trainer.async.warmup_batches={BOUND}"),
    ]


class Run:
    """A run that is killed, and continued, until it is done; ``steps`` are those that its metrics show."""

    def __init__(self, workspace: Workspace, name: str, mode: str, steps: int, *overrides: str):
        self.workspace, self.name, self.mode = workspace, name, mode
        self.command = [*command(name, mode, steps), *overrides]
        self.process: subprocess.Popen[str] | None = None

    @property
    def steps(self) -> int:
        file = self.workspace.runs / self.name / "metrics.jsonl"
        return len(self.workspace.metrics(self.name)) - 1 if file.exists() else 0

    def start(self) -> None:
        again = ["--resume"] if self.process is not None else []
        # Not a fork, which has the signals of its interpreter.
        process = self.workspace.start(*self.command, *again, python=Path(sys.executable))
        assert isinstance(process, subprocess.Popen)
        self.process = process

    def wait_for_step(self, step: int) -> list[psutil.Process]:
        """Wait for a step; returns the processes of the run."""
        assert self.process is not None
        wait_for(f"step {step}", lambda: self.steps >= step, 600, self.process)
        run = [psutil.Process(self.process.pid), *descendants(self.process.pid)]
        return [*run[1:], *environments_of(run)]

    def kill(self, target: str, processes: list[psutil.Process]) -> None:
        assert self.process is not None
        victim = psutil.Process(self.process.pid)
        if target != "the command":
            found = find(processes, *TARGETS[target])
            assert found is not None, target
            victim = found
        victim.kill()

    def end(self, target: str, processes: list[psutil.Process]) -> str:
        """Wait for the end that the death of ``target`` brings about; returns the command's message."""
        assert self.process is not None
        _, err = self.process.communicate(timeout=MAX_SECONDS)
        assert self.process.returncode == (-9 if target == "the command" else 1), err
        assert target == "the command" or "--resume" in err, err
        assert_all_gone(processes)
        return err

    def finish(self) -> None:
        assert self.process is not None
        _, err = self.process.communicate(timeout=900)
        assert self.process.returncode == 0, err


def assert_exact(workspace: Workspace, name: str, steps: int) -> None:
    rows = workspace.metrics(name)
    assert [row["step"] for row in rows] == list(range(steps + 1))
    # What dies between a checkpoint and its step's figures takes these with it; the episodes are in the store.
    measured = [row for row in rows[1:] if "loss" in row]
    assert len(measured) >= steps - len(ROUNDS["separate_async"])
    assert all(row["max_staleness"] <= BOUND for row in measured), rows
    summary = workspace.summary(name)
    assert (summary["status"], summary["steps_done"]) == ("completed", steps)
    with open_run_store(open_run(name, workspace.runs)) as store:
        trained = list(store.episodes("phase=train and trained_step>0"))
        played = list(store.episodes("phase=train"))
    assert Counter(head.trained_step for head in trained) == {
        row["step"]: row.get("trained_episodes", TASKS * EPISODES) for row in rows[1:]
    }
    # Each task is once in an epoch, of which these steps are a part: nothing is trained on twice.
    assert max(Counter((head.task, head.attempt) for head in trained).values()) == 1
    # What was finished is trained on; at the end of the run tasks are ahead.
    untrained = {head.task for head in played if head.status == "ended"} - {head.task for head in trained}
    dropped = {head.task for head in played if head.figures.treatment == "dropped"}
    assert len(untrained - dropped) <= (BOUND + 1) * TASKS, untrained


def lost_episodes(workspace: Workspace, name: str) -> list[dict[str, Any]]:
    return [line for line in workspace.episodes(name) if "the sampler died" in (line.get("cause") or "")]


def assert_left_out(lines: list[dict[str, Any]]) -> None:
    for line in lines:
        assert line["outcome"] == "infrastructure" and line.get("reward") is None, line


def engines(run: Run) -> list[psutil.Process]:
    assert run.process is not None
    return [one for one in descendants(run.process.pid) if find([one], *TARGETS["the engine"])]


def ask_for_samplers(workspace: Workspace, run: Run, number: int) -> None:
    done = workspace.run("runs", "samplers", run.name, str(number))
    assert done.returncode == 0, done.stderr
    assert run.process is not None
    wait_for(f"{number} samplers", lambda: len(engines(run)) == number, 120, run.process)


def test_samplers_come_and_go_or_die_and_the_driver_is_killed_and_all_stays_exact(
    workspace: Workspace,
) -> None:
    # More steps than are needed, which wait for their scores: samplers must have come and gone before the last one.
    run = Run(
        workspace,
        "killed-sampler",
        "separate_async",
        steps := 14,
        f"reward.scorer={REPOSITORY / 'tests' / 'data' / 'scorers.py'}:slow",
        "trainer.async.sync_every=2",
        f"trainer.minibatch_size={TASKS // 2}",
        f"trainer.keep_checkpoints={steps}",
    )
    run.start()
    processes = run.wait_for_step(1)
    run.kill("the engine", processes)
    processes = run.wait_for_step(run.steps + 3)
    assert sum(row.get("lost_samplers", 0) for row in workspace.metrics(run.name)) == 1
    assert_left_out(lost := lost_episodes(workspace, run.name))
    for number in (3, 1):
        ask_for_samplers(workspace, run, number)
        run.wait_for_step(run.steps + 2)
    assert sum(row.get("lost_samplers", 0) for row in workspace.metrics(run.name)) == 1
    assert lost_episodes(workspace, run.name) == lost, "what was asked to leave has lost nothing"
    processes = run.wait_for_step(run.steps)
    run.kill("VeRL's driver", processes)
    message = run.end("VeRL's driver", processes)
    assert "was killed (SIGKILL" in message and "Traceback" not in message
    assert workspace.summary(run.name)["status"] == "failed"
    run.start()
    run.finish()
    assert_exact(workspace, run.name, steps)
    assert any(row["staleness"] > 0 for row in workspace.metrics(run.name)[1:] if "staleness" in row)
    differences = compared(workspace, run.name)
    assert len(differences) > 1, "versions"
    assert max(differences.values()) < 1e-5, differences


@pytest.mark.slow
def test_a_run_whose_samplers_do_not_come_back_ends_with_the_reason(workspace: Workspace) -> None:
    model = shutil.copytree(workspace.path / "models" / "tiny", workspace.path / "models" / "moved")
    run = Run(workspace, "no-samplers", "separate_async", 200)
    run.command += ["model.path=models/moved", "trainer.async.recovery_timeout=20"]
    run.start()
    processes = run.wait_for_step(1)
    model.rename(model.with_name("elsewhere"))  # what another sampler would load
    for sampler in [process for process in processes if find([process], *TARGETS["the engine"])]:
        sampler.kill()
    message = run.end("the engine", processes)
    assert "could not be started" in message and "trainer.async.recovery_timeout" in message, message
    assert workspace.summary(run.name)["status"] == "failed"


@pytest.mark.slow
@pytest.mark.parametrize("mode", ROUNDS)
def test_rounds_of_killing(workspace: Workspace, mode: str) -> None:
    steps, moments = 40, random.Random(SEED)
    run = Run(workspace, f"rounds-{mode}", mode, steps)
    run.start()
    for target in ROUNDS[mode]:
        processes = run.wait_for_step(run.steps + moments.randint(1, 4))
        run.kill(target, processes)
        message = "training continues"
        if (mode, target) != ("separate_async", "the engine"):
            message = run.end(target, processes).strip().splitlines()[-1] if target != "the command" else ""
            run.start()
        sys.stdout.write(f"| {mode} | {target} | after step {run.steps} | {message[:160]} |\n")
    run.finish()
    assert_exact(workspace, run.name, steps)
    assert_left_out(lost_episodes(workspace, run.name))
