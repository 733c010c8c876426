"""One process of a run is killed or stopped at some moment: the run notices, says why, and goes on with ``--resume``.

    pytest -m slow tests/e2e/test_chaos.py

The moments are drawn with a fixed seed. A row for each round is printed, as in docs/reliability.md.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import psutil
import pytest

from tests.e2e.conftest import SMALL, Workspace, assert_all_gone, descendants, environments_of, find, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(1800)]

SEED = 17
MAX_SECONDS = 90  # to the end of the command
STEPS = 8
RUN = [*SMALL, f"trainer.steps={STEPS}"]
TARGETS = {
    "the command": ("aworld_train train",),
    "VeRL's driver": ("aworld_train.adapter.verl.main",),
    "the controller": ("ray::TaskRunner",),
    "the trainer": ("ray::WorkerDict",),
    "the engine": ("ray::TransformersServer",),
    "the episode worker": ("ray::EpisodeWorker",),
    "the reward worker": ("ray::RewardLoopWorker",),
    "the queue's controller": ("ray::TransferQueueController",),
    "the queue's storage": ("ray::SimpleStorageUnit",),
    "raylet": ("raylet/raylet",),
    "Ray's head": ("gcs_server",),
    "the environment's gateway": ("aworld_train.serving.env_gateway",),
    "the environment's worker": ("aworld_train.serving.worker",),
}
"""By name, words of the process's command line."""


def start_and_wait_for_a_checkpoint(
    workspace: Workspace, name: str, target: str, *overrides: str
) -> tuple[subprocess.Popen[str], list[psutil.Process]]:
    """A run that has a checkpoint and is at some moment after it, and its processes."""
    # Not a fork, which has the signals of its interpreter.
    command = ("train", "recipes/quickstart.yaml", f"name={name}", *RUN, *overrides)
    process = workspace.start(*command, python=Path(sys.executable))
    assert isinstance(process, subprocess.Popen)
    checkpoints = workspace.runs / name / "checkpoints"
    wait_for("checkpoint", lambda: [*checkpoints.glob("global_step_*/actor/huggingface/*")], 600, process)
    time.sleep(random.Random(f"{SEED} {target}").uniform(0, 3))
    run = [psutil.Process(process.pid), *descendants(process.pid)]
    return process, [*run[1:], *environments_of(run)]


@pytest.mark.parametrize("target", TARGETS)
def test_a_killed_process_ends_the_run_with_its_reason_and_nothing_is_lost(
    workspace: Workspace, target: str
) -> None:
    name = "chaos-" + "".join(letter for letter in target if letter.isalnum())
    process, everything = start_and_wait_for_a_checkpoint(workspace, name, target)
    victim = find(everything, *TARGETS[target]) if target != "the command" else None
    began = time.monotonic()
    if target == "the command":
        process.send_signal(signal.SIGKILL)
    else:
        assert victim is not None, [each.name() for each in everything]
        victim.kill()
    _, err = process.communicate(timeout=MAX_SECONDS + 300)
    seconds = time.monotonic() - began
    message = err.strip().splitlines()[-1] if err.strip() else ""
    sys.stdout.write(f"| kill -9 of {target} | {process.returncode} | {seconds:.0f} s | {message[:200]} |\n")
    assert_all_gone(everything)
    if process.returncode == 0:  # what Ray or the environment starts again costs nothing
        assert workspace.summary(name)["steps_done"] == STEPS
    else:
        assert seconds < MAX_SECONDS
        assert "Traceback" not in err
        if target != "the command":
            assert process.returncode == 1 and "--resume" in message, err
            assert workspace.summary(name)["status"] == "failed"
        done = workspace.run("train", "recipes/quickstart.yaml", f"name={name}", *RUN, "--resume", "--quiet")
        assert done.returncode == 0, done.stderr
    assert [row["step"] for row in workspace.metrics(name)] == list(range(STEPS + 1))


def test_a_run_that_may_restart_goes_on_by_itself(workspace: Workspace) -> None:
    process, everything = start_and_wait_for_a_checkpoint(
        workspace, "restarts", "a restart", "trainer.max_restarts=1"
    )
    victim = find(everything, *TARGETS["the episode worker"])
    assert victim is not None
    victim.kill()
    _, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    summary = workspace.summary("restarts")
    assert (summary["status"], summary["steps_done"]) == ("completed", STEPS)
    (restart,) = summary["restarts"]
    assert "died" in restart["error"] and restart["from_step"] >= 1
    assert "Restart 1 of 1" in err
    assert [row["step"] for row in workspace.metrics("restarts")] == list(range(STEPS + 1))
    assert_all_gone(everything)


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM], ids=lambda number: number.name)
def test_a_signal_ends_a_run_that_goes_on_where_it_was(workspace: Workspace, number: signal.Signals) -> None:
    name = f"chaos-{number.name}"
    # Ignored where these tests are started with nohup; a run would inherit that.
    before = signal.signal(number, signal.SIG_DFL)
    try:
        process, everything = start_and_wait_for_a_checkpoint(workspace, name, number.name)
    finally:
        signal.signal(number, before)
    began = time.monotonic()
    process.send_signal(number)
    _, err = process.communicate(timeout=MAX_SECONDS)
    sys.stdout.write(
        f"| {number.name} to the command | {process.returncode} | {time.monotonic() - began:.0f} s |\n"
    )
    assert process.returncode == 130 and "Traceback" not in err
    assert_all_gone(everything)
    assert workspace.summary(name)["status"] == "interrupted"
    done = resume(workspace, name)
    assert done.returncode == 0, done.stderr
    assert [row["step"] for row in workspace.metrics(name)] == list(range(STEPS + 1))


def test_a_run_whose_files_are_torn_goes_on_once_though_two_commands_try(workspace: Workspace) -> None:
    name = "chaos-torn"
    process, everything = start_and_wait_for_a_checkpoint(
        workspace, name, "torn files", "trainer.keep_checkpoints=9"
    )
    victim = find(everything, *TARGETS["VeRL's driver"])
    assert victim is not None
    victim.kill()
    process.communicate(timeout=MAX_SECONDS)
    folder = workspace.runs / name
    saved = sorted(folder.glob("checkpoints/global_step_*"), key=lambda path: int(path.name.split("_")[-1]))
    largest = max(
        (file for file in saved[-1].rglob("*") if file.is_file()), key=lambda file: file.stat().st_size
    )
    os.truncate(largest, largest.stat().st_size // 2)
    (folder / "checkpoints" / "latest_checkpointed_iteration.txt").write_text("999")
    for file in ("traces/episodes.jsonl", "metrics.jsonl"):
        with (folder / file).open("a") as stream:
            stream.write('{"step": 2, "vali')
    again = (
        "train",
        "recipes/quickstart.yaml",
        f"name={name}",
        *RUN,
        "trainer.keep_checkpoints=9",
        "--resume",
    )
    commands = [workspace.start(*again), workspace.start(*again)]
    ends = [command.communicate(timeout=600) for command in commands]
    assert sorted(command.returncode for command in commands) == [0, 2], ends
    refused = next(err for command, (_, err) in zip(commands, ends, strict=True) if command.returncode == 2)
    assert " is running: process " in refused
    assert [row["step"] for row in workspace.metrics(name)] == list(range(STEPS + 1))
    trained = Counter(line["step"] for line in workspace.episodes(name) if not line["validate"])
    assert trained == dict.fromkeys(range(1, STEPS + 1), 16)
    attempts = json.loads((folder / "manifest.json").read_text())["attempts"]
    assert attempts[-1]["from_step"] == int(saved[-1].name.split("_")[-1]) - 1


def resume(workspace: Workspace, name: str) -> "subprocess.CompletedProcess[str]":
    return workspace.run("train", "recipes/quickstart.yaml", f"name={name}", *RUN, "--resume", "--quiet")
