"""The script of a job: what SLURM is asked for, what runs, and that no secret is in it."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from aworld_train.adapter.episodes.files import write_files
from aworld_train.launch.slurm.launcher import SCRIPT, job_files
from aworld_train.recipe import read


def script(tmp_path: Path, *overrides: str, resume: bool = False, recipe: object = None) -> list[str]:
    loaded = read(recipe or {"name": "long"}, ["cluster.launcher=slurm", *overrides])  # type: ignore[arg-type]
    runs = tmp_path / "my runs, 100%"
    files = job_files(loaded, runs / "long", runs, resume=resume)
    write_files(runs / "long", files)
    return files[SCRIPT].splitlines()


def options(lines: list[str]) -> list[str]:
    return [line.removeprefix("#SBATCH ") for line in lines if line.startswith("#SBATCH ")]


def test_a_job_has_the_nodes_of_the_recipe_whole_and_can_be_requeued(tmp_path: Path) -> None:
    asked = options(script(tmp_path, "cluster.nodes=2"))
    assert {"--nodes=2", "--ntasks-per-node=1", "--exclusive", "--requeue", "--signal=B:USR1@300"} <= {*asked}
    assert not [option for option in asked if option.startswith(("--gres", "--time", "--partition"))]
    assert f"--output='{tmp_path}/my runs, 100%%/long/launch/job-%j.log'" in asked


def test_a_job_on_gpus_asks_for_them(tmp_path: Path) -> None:
    assert "--gres=gpu:4" in options(script(tmp_path, "cluster.gpus_per_node=4", "rollout.engine=vllm"))


def test_the_users_options_are_there_and_come_last(tmp_path: Path) -> None:
    asked = options(
        script(
            tmp_path,
            "cluster.slurm.partition=gpu",
            "cluster.slurm.account=lab",
            "cluster.slurm.time=12:00:00",
            "cluster.slurm.cpus_per_node=16",
            "cluster.slurm.options=[--qos=high]",
            "cluster.slurm.save_before=60",
        )
    )
    assert {"--partition=gpu", "--account=lab", "--time=12:00:00", "--cpus-per-task=16"} <= {*asked}
    assert "--exclusive" not in asked
    assert "--signal=B:USR1@60" in asked
    assert asked[-1] == "--qos=high"


def test_the_job_runs_the_command_with_its_own_copy_of_the_recipe(tmp_path: Path) -> None:
    *_, last = script(tmp_path, "cluster.slurm.setup=[module load cuda]", resume=True)
    command = shlex.split(last)
    assert command[:6] == ["exec", sys.executable, "-P", "-m", "aworld_train", "train"]
    assert command[6] == str(tmp_path / "my runs, 100%" / "long" / "launch" / "recipe.yaml")
    assert command[7:] == ["--runs", str(tmp_path / "my runs, 100%"), "--launcher", "slurm", "--resume"]


def test_setup_lines_run_before_the_command_which_ignores_the_signal_until_it_can_save(
    tmp_path: Path,
) -> None:
    lines = script(tmp_path, "cluster.slurm.setup=['echo one $HOME', 'echo two']")
    assert lines[0] == "#!/bin/bash"
    assert (
        lines.index("trap '' USR1") < lines.index("echo one $HOME") < lines.index("echo two") < len(lines) - 1
    )
    checked = subprocess.run(
        ["bash", "-n"], input="\n".join(lines), text=True, capture_output=True, timeout=30
    )
    assert checked.returncode == 0, checked.stderr


@pytest.mark.parametrize(
    "env",
    [
        {"url": "http://h/mcp", "token": "${oc.env:LAUNCH_TOKEN}"},
        {"mcp_servers": {"a": {"command": "npx", "args": ["p"], "env": {"KEY": "${oc.env:LAUNCH_TOKEN}"}}}},
    ],
    ids=["token", "tool servers"],
)
def test_no_value_of_a_variable_is_in_the_files_of_a_job(
    env: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAUNCH_TOKEN", "s3cret-value")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    script(tmp_path, recipe={"name": "long", "env": env})
    written = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert {file.name for file in written} == {"job.sbatch", "recipe.yaml"}
    assert not [file for file in written if "s3cret" in file.read_text()]
