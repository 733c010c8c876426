"""What a run does when something dies: the driver, the user's patience, the tool server, the disk."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.e2e.conftest import SMALL, Workspace, assert_all_gone, descendants, find, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]


def _train(workspace: Workspace, name: str, *more: str) -> "subprocess.Popen[str]":
    return workspace.start("train", "recipes/quickstart.yaml", f"name={name}", *SMALL, *more)


def _first_checkpoint(workspace: Workspace, name: str) -> bool:
    return (workspace.runs / name / "checkpoints" / "latest_checkpointed_iteration.txt").exists()


def test_a_killed_run_and_an_interrupted_one_go_on_where_they_were(workspace: Workspace) -> None:
    # kill -9 of VeRL's driver
    process = _train(workspace, "kill")
    # The checkpoint comes first: a run that is killed in between goes on without that step's metrics.
    wait_for("checkpoint", lambda: _first_checkpoint(workspace, "kill"), 600, process)
    wait_for("step", lambda: len(workspace.metrics("kill")) > 1, 120, process)
    everything = descendants(process.pid)
    driver = find(everything, "aworld_train.adapter.verl.main")
    assert driver is not None
    driver.kill()
    _, err = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "was killed (SIGKILL" in err
    assert "--resume" in err
    assert "Traceback" not in err
    assert_all_gone(everything)
    assert workspace.summary("kill")["status"] == "failed"
    reached = workspace.summary("kill")["steps_done"]
    assert 1 <= reached < 4

    # another recipe is not resumed
    refused = workspace.run(
        "train", "recipes/quickstart.yaml", "name=kill", *SMALL, "trainer.lr=1e-5", "--resume"
    )
    assert refused.returncode == 2
    assert "trainer.lr" in refused.stderr
    # nor is a folder with something in it taken for a new run
    refused = workspace.run("train", "recipes/quickstart.yaml", "name=kill", *SMALL)
    assert refused.returncode == 2
    assert "--resume" in refused.stderr

    # Ctrl-C
    process = _train(workspace, "kill", "--resume")
    wait_for("step", lambda: len(workspace.metrics("kill")) > reached + 1, 600, process)
    everything = descendants(process.pid)
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert time.monotonic() - began < 15
    assert process.returncode == 130
    assert workspace.summary("kill")["status"] == "interrupted"
    assert_all_gone(everything)

    # and to the end, although a machine that went down left a file empty and a line half written
    run = workspace.runs / "kill"
    (run / "checkpoints/latest_checkpointed_iteration.txt").write_text("")
    with (run / "traces/episodes.jsonl").open("a") as file:
        file.write('{"step": 3, "validate": fal')
    done = workspace.run("train", "recipes/quickstart.yaml", "name=kill", *SMALL, "--resume", "--quiet")
    assert done.returncode == 0, done.stderr
    summary = workspace.summary("kill")
    assert summary["status"] == "completed"
    assert summary["steps_done"] == summary["steps_planned"] == 4
    assert [row["step"] for row in workspace.metrics("kill")] == [0, 1, 2, 3, 4]
    attempts = json.loads((run / "manifest.json").read_text())["attempts"]
    assert [attempt["from_step"] for attempt in attempts[:3]] == sorted(
        attempt["from_step"] for attempt in attempts[:3]
    )
    assert attempts[2]["from_step"] >= reached
    assert '{"step": 3, "validate": fal\n' in (run / "traces/superseded.jsonl").read_text()
    assert summary["val"]["before"]["n"] == summary["val"]["after"]["n"] == 16
    played = [line for line in workspace.episodes("kill") if not line["validate"]]
    assert {step: sum(line["step"] == step for line in played) for step in (1, 2, 3, 4)} == dict.fromkeys(
        (1, 2, 3, 4), 16
    )

    # a run that is complete has nothing left to do
    again = workspace.run("train", "recipes/quickstart.yaml", "name=kill", *SMALL, "--resume", seconds=90)
    assert again.returncode == 0, again.stderr


def test_nothing_outlives_a_killed_command(workspace: Workspace) -> None:
    process = _train(workspace, "orphan")
    wait_for("Ray", lambda: find(descendants(process.pid), "raylet") is not None, 600, process)
    wait_for("worker", lambda: find(descendants(process.pid), "ray::") is not None, 60, process)
    everything = descendants(process.pid)
    assert find(everything, "aworld_train.adapter.verl.main") is not None
    assert find(_servers(process), "aworld_train.serving.local") is not None
    private = Path("/tmp") / (workspace.runs / "orphan" / "private-folder").read_text()
    assert (private / "token").exists()
    process.kill()
    process.wait()
    assert_all_gone(everything, seconds=30)
    assert not private.exists()


def test_a_lost_tool_server_ends_the_run_and_is_not_trained_on(workspace: Workspace) -> None:
    process = _train(workspace, "lost", "env.recovery_timeout=5")
    wait_for("checkpoint", lambda: _first_checkpoint(workspace, "lost"), 600, process)
    # What keeps gateway and workers running; without it they end, and are not started again.
    server = find(_servers(process), "aworld_train.serving.local")
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


def _servers(process: "subprocess.Popen[str]") -> list:
    """Processes of environments that this command owns; they live in sessions of their own."""
    import psutil

    found = []
    for candidate in psutil.process_iter():
        try:
            if (
                f"--owner-pid {process.pid}" in " ".join(candidate.cmdline())
                and "--detach" in candidate.cmdline()
            ):
                found += candidate.children(recursive=True)
        except psutil.Error:
            continue
    return found


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
