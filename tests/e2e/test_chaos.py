"""One process of a run is killed or stopped at some moment: the run notices, says why, and goes on with ``--resume``.

    pytest -m slow tests/e2e/test_chaos.py

The moments are drawn with a fixed seed. A row for each round is printed, as in docs/reliability.md.
"""

import random
import signal
import subprocess
import sys
import time

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
    process = workspace.start("train", "recipes/quickstart.yaml", f"name={name}", *RUN, *overrides)
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
