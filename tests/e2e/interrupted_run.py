"""A run that was interrupted, then killed, and continued to its end: made once, and read by many tests.

Its agent writes down what the engine gave, and three trackers record it; the trackers' variables are its own.
"""

import os
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.aworld_environment import mlflow_python
from tests.e2e.conftest import (
    REPOSITORY,
    SMALL,
    STARTED_BY,
    Workspace,
    assert_all_gone,
    descendants,
    environments_of,
    find,
    wait_for,
)
from tests.terminal import Terminal

NAME, STEPS = "interrupted", 5
DRIVER = "aworld_train.adapter.verl.main"
KEY = "5ec2e7" * 6 + "5ec2"
"""Looks like a key of W&B's, and is none."""
TRACKER_VARIABLES = (
    "WANDB_API_KEY",
    "WANDB_MODE",
    "WANDB_DIR",
    "WANDB_DATA_DIR",
    "WANDB_RUN_ID",
    "NETRC",
    "MLFLOW_TRACKING_URI",
    "MLFLOW_RUN_ID",
    "TENSORBOARD_DIR",
)
COMMAND = [
    *("train", "recipes/quickstart.yaml", f"name={NAME}", *SMALL),
    *(f"trainer.steps={STEPS}", "trainer.val_every=2", "trainer.log_val_generations=2"),
    "trainer.loggers=[wandb,mlflow,tensorboard]",
    f"agent.builder={REPOSITORY / 'tests' / 'data' / 'agents' / 'recording.py'}:build",
    *("dataset.max_prompt_tokens=400", "rollout.max_response_tokens=256"),
]


def interrupted_run(workspace: Workspace) -> dict[str, Any]:
    """What was seen of each start, by its name: ``screen``, ``killed`` and ``end``."""
    # Made in the home that there is.
    (packages,) = mlflow_python().parents[1].glob("lib/python*/site-packages")

    def make() -> dict[str, Any]:
        with pytest.MonkeyPatch.context() as patch:
            for name in TRACKER_VARIABLES:
                patch.delenv(name, raising=False)
            patch.setenv("HOME", str(home(workspace)))
            home(workspace).mkdir()
            seen = {"screen": _interrupted(workspace, packages), "killed": _killed(workspace, packages)}
            # The key is there in the third start.
            patch.setenv("WANDB_API_KEY", KEY)
            patch.setenv("WANDB_MODE", "offline")
            seen["end"] = _to_its_end(workspace, packages)
            return seen

    return workspace.once(NAME, make)


def home(workspace: Workspace) -> Path:
    """The home of the run's user, without any login."""
    return workspace.path / "home"


def _interrupted(workspace: Workspace, packages: Path) -> dict[str, Any]:
    """Shown on a terminal, and ended with Ctrl-C after two steps."""
    variables = {
        "AWORLD_TRAIN_STATE": str(workspace.path / "state"),
        "PYTHONPATH": f"{REPOSITORY}{os.pathsep}{packages}",
        STARTED_BY: str(os.getpid()),
    }
    command = [sys.executable, "-m", "aworld_train", *COMMAND]
    workspace.starts += 1
    with Terminal(command, environment=variables, cwd=workspace.path) as terminal:
        first = terminal.wait_for("▶ start", 300)
        was_full_screen = terminal.is_full_screen
        later = terminal.wait_for(f"step 2 of {STEPS}", 300)
        everything = descendants(terminal.process.pid)
        terminal.type("\x03")
        code = terminal.end(60)
        assert_all_gone(everything)
        return {
            "first": first,
            "later": later,
            "code": code,
            "last": terminal.text,
            "full screen": [was_full_screen, terminal.is_full_screen],
            "cursor": terminal.has_cursor,
            "summary": workspace.summary(NAME),
        }


def _killed(workspace: Workspace, packages: Path) -> dict[str, Any]:
    """kill -9 of the command, among the episodes of a step; nothing of the run outlives it."""
    episodes = workspace.runs / NAME / "traces" / "episodes.jsonl"
    before = len(episodes.read_text().splitlines())
    process = workspace.start(*COMMAND, "--resume", also=packages)
    # A resumed run may first remove lines of episodes that it will play again.
    wait_for("step", lambda: find(descendants(process.pid), "ray::EpisodeWorker"), 600, process)
    wait_for("episode", lambda: len(episodes.read_text().splitlines()) not in (0, before), 300, process)
    run = [psutil.Process(process.pid), *descendants(process.pid)]
    environment = environments_of(run)
    private = Path("/tmp") / (workspace.runs / NAME / "private-folder").read_text()
    seen = {
        "driver": find(run, DRIVER) is not None,
        "environment": find(environment, "aworld_train.serving.local") is not None,
        "private": [(private / "token").exists()],
    }
    process.kill()
    _, err = process.communicate(timeout=120)
    assert_all_gone([*run[1:], *environment])
    # Another recipe is not resumed, nor is a folder with something in it taken for a new run.
    refused = [
        workspace.run(*COMMAND, *more, also=packages) for more in (("trainer.lr=1e-5", "--resume"), ())
    ]
    return {
        **seen,
        "private": [*seen["private"], private.exists()],
        "err": err,
        "refused": [[each.returncode, each.stderr] for each in refused],
    }


def _to_its_end(workspace: Workspace, packages: Path) -> dict[str, Any]:
    """Although a machine that went down left a file empty and a line half written."""
    run = workspace.runs / NAME
    (run / "checkpoints/latest_checkpointed_iteration.txt").write_text("")
    with (run / "traces/episodes.jsonl").open("a") as file:
        file.write('{"step": 3, "validate": fal')
    done = workspace.run(*COMMAND, "--resume", "--quiet", also=packages)
    # A run that is complete has nothing left to do.
    again = workspace.run(*COMMAND, "--resume", also=packages, seconds=90)
    return {"code": done.returncode, "err": done.stderr, "again": [again.returncode, again.stderr]}
