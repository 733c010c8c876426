"""What a run does when something dies: the driver, a worker, the user's patience, the tool server, the disk."""

import json
import os
import re
import subprocess
from collections import Counter
from pathlib import Path

import psutil
import pytest

from tests.e2e.conftest import SMALL, Workspace, environments_of, find, wait_for
from tests.e2e.interrupted_run import NAME, STEPS, interrupted_run

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

FEW = "dataset.val_limit=2"


def _first_checkpoint(workspace: Workspace, name: str) -> bool:
    return (workspace.runs / name / "checkpoints" / "latest_checkpointed_iteration.txt").exists()


def test_a_run_that_was_killed_and_interrupted_went_on_where_it_was(workspace: Workspace) -> None:
    seen = interrupted_run(workspace)
    screen, killed, end = (seen[name] for name in ("screen", "killed", "end"))
    assert screen["summary"]["status"] == "interrupted"
    (other_recipe, not_empty) = killed["refused"]
    assert other_recipe[0] == 2 and "trainer.lr" in other_recipe[1]
    assert not_empty[0] == 2 and "--resume" in not_empty[1]

    assert end["code"] == 0, end["err"]
    assert end["again"][0] == 0, end["again"][1]
    run, summary, steps = workspace.runs / NAME, workspace.summary(NAME), range(1, STEPS + 1)
    assert summary["status"] == "completed"
    assert summary["steps_done"] == summary["steps_planned"] == STEPS
    assert [row["step"] for row in workspace.metrics(NAME)] == [0, *steps]
    begun = [attempt["from_step"] for attempt in json.loads((run / "manifest.json").read_text())["attempts"]]
    assert begun[:3] == sorted(begun[:3])
    assert 2 <= begun[1] < STEPS
    assert '{"step": 3, "validate": fal\n' in (run / "traces/superseded.jsonl").read_text()
    assert summary["val"]["before"]["n"] == summary["val"]["after"]["n"] == 16
    played = Counter(line["step"] for line in workspace.episodes(NAME) if not line["validate"])
    assert played == dict.fromkeys(steps, 16)


def test_a_run_is_shown_as_it_goes_and_ctrl_c_gives_the_terminal_back(workspace: Workspace) -> None:
    seen = interrupted_run(workspace)["screen"]
    assert seen["full screen"] == [True, False]
    assert seen["first"].startswith(f"{NAME}  step 0 of {STEPS}")
    text = seen["later"]
    assert re.search(r"^reward    \d\.\d{3}  \S\S  \d\.\d{3} to \d\.\d{3}$", text, re.MULTILINE)
    assert re.search(r"^outcomes  .*\b\d+  \((step|validation)", text, re.MULTILINE)
    assert re.search(r"^tokens/s  [\d,]+$", text, re.MULTILINE)
    assert " left" in text.splitlines()[0]
    assert seen["code"] == 130
    assert seen["cursor"]
    assert re.search(rf"step 2/{STEPS} · reward", seen["last"])
    assert seen["last"].endswith("error: interrupted")


def test_nothing_outlives_a_killed_command(workspace: Workspace) -> None:
    seen = interrupted_run(workspace)["killed"]
    assert seen["driver"] and seen["environment"]
    assert seen["private"] == [True, False]


def test_a_lost_tool_server_ends_the_run_and_is_not_trained_on(workspace: Workspace) -> None:
    process = workspace.start(
        "train", "recipes/quickstart.yaml", "name=lost", *SMALL, FEW, "env.recovery_timeout=5"
    )
    wait_for("checkpoint", lambda: _first_checkpoint(workspace, "lost"), 600, process)
    # What keeps gateway and workers running; without it they end, and are not started again.
    server = find(environments_of([psutil.Process(process.pid)]), "aworld_train.serving.local")
    assert server is not None
    server.kill()
    _, err = process.communicate(timeout=180)
    assert process.returncode == 1
    assert "tool environment" in err
    assert "--resume" in err
    summary = workspace.summary("lost")
    assert summary["status"] == "failed"
    assert summary["error"]["kind"] == "environment"
    assert summary["environment_losses"] > 0
    assert summary["steps_done"] < 4
    # Nothing that the dead server left undone bears a reward.
    lost = [line for line in workspace.episodes("lost") if line["outcome"] == "environment"]
    assert lost
    assert all(line.get("reward") is None for line in lost)


def fill(disk: Path, leave: int) -> None:
    """Fill a disk, which a run is writing to, up to about so many bytes."""
    for _ in range(10):
        free = os.statvfs(disk)
        try:
            (disk / "ballast").write_bytes(b"x" * max(0, free.f_bavail * free.f_frsize - leave))
            return
        except OSError:  # the run was faster
            (disk / "ballast").unlink(missing_ok=True)
    raise TimeoutError(f"{disk} could not be filled")


def test_a_full_disk_is_said_in_one_paragraph_and_loses_no_checkpoint(
    workspace: Workspace, tmp_path: Path
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(disk)], capture_output=True
    )
    if mounted.returncode != 0:
        pytest.skip("needs the right to mount a small file system")
    try:
        process = workspace.start(
            "train",
            "recipes/quickstart.yaml",
            "name=full",
            *SMALL,
            FEW,
            "--runs",
            str(disk),
            "trainer.keep_checkpoints=3",
        )
        latest = disk / "full" / "checkpoints" / "latest_checkpointed_iteration.txt"
        wait_for("checkpoint", latest.exists, 600, process)
        fill(disk, leave=300_000)
        _, err = process.communicate(timeout=300)
        assert process.returncode == 1
        assert "The disk is full" in err
        assert "Traceback" not in err
        assert (
            disk / "full" / "checkpoints" / f"global_step_{latest.read_text()}" / "actor" / "huggingface"
        ).is_dir()
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)
