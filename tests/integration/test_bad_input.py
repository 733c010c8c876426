"""Bad input gets one clear paragraph and exit code 1 or 2: no traceback, and nothing lost or left behind."""

import json
import os
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from tests import warm

RECIPE = """\
name: t
model:
  path: model
env:
  docker_dir: calculator-mcp-server
  backend: process
dataset:
  train: data/train.parquet
  val: data/val.parquet
trainer:
  steps: 2
"""


def cli(*arguments: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    return warm.run(
        *("-m", "aworld_train", *arguments),
        cwd=cwd,
        env={**os.environ, "AWORLD_TRAIN_STATE": str(cwd / "state")},
        timeout=120,
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bad")
    built = cli(
        "dataset",
        "build",
        "arithmetic",
        "--out",
        "data",
        "--limit",
        "200",
        "--split",
        "train=0.5",
        "--split",
        "val=0.5",
        cwd=folder,
    )
    assert built.returncode == 0, built.stderr
    model = folder / "model"
    model.mkdir()
    for name in (
        "config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "model.safetensors",
        "chat_template.jinja",
    ):
        (model / name).write_text("{}")
    return folder


@pytest.fixture
def workspace(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    return tmp_path


def refused(process: "subprocess.CompletedProcess[str]", code: int, *words: str) -> None:
    """One paragraph on stderr, nothing on stdout, the exit code, no traceback."""
    assert process.returncode == code, process.stderr
    assert process.stdout == ""
    assert "Traceback" not in process.stderr
    paragraph = process.stderr[process.stderr.index("error: ") :]
    assert "\n" not in paragraph.strip()
    for word in words:
        assert word in process.stderr


def test_an_unknown_key_is_named_with_file_line_and_nearest_key(workspace: Path) -> None:
    (workspace / "recipe.yaml").write_text(RECIPE.replace("  steps: 2", "  stepz: 2"))
    refused(cli("train", "recipe.yaml", cwd=workspace), 2, "recipe.yaml:11", "trainer.stepz", "trainer.steps")


def test_a_missing_recipe_dataset_or_model_is_named(workspace: Path) -> None:
    refused(cli("train", "recip.yaml", cwd=workspace), 2, "recip.yaml", "recipe.yaml")
    refused(
        cli("train", "recipe.yaml", "dataset.train=data/none.parquet", cwd=workspace), 2, "data/none.parquet"
    )
    refused(cli("train", "recipe.yaml", "model.path=nowhere", cwd=workspace), 2, "nowhere", "model tiny")


def test_an_empty_dataset_is_refused(workspace: Path) -> None:
    import pyarrow.parquet as pq

    pq.write_table(pq.read_table(workspace / "data/train.parquet").slice(0, 0), workspace / "empty.parquet")
    refused(cli("train", "recipe.yaml", "dataset.train=empty.parquet", cwd=workspace), 1, "empty.parquet")


def test_a_model_without_tokenizer_or_chat_template_is_refused(workspace: Path) -> None:
    (workspace / "model" / "chat_template.jinja").unlink()
    refused(cli("train", "recipe.yaml", cwd=workspace), 2, "model", "chat template")
    (workspace / "model" / "tokenizer.json").unlink()
    refused(cli("train", "recipe.yaml", cwd=workspace), 2, "model", "no tokenizer")


def test_a_port_in_use_is_named(workspace: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        process = cli(
            "env",
            "up",
            "--docker-dir",
            "calculator-mcp-server",
            "--backend",
            "process",
            "--port",
            port,
            cwd=workspace,
        )
    assert process.returncode in (1, 2)
    assert port in process.stderr
    assert "Traceback" not in process.stderr


def test_no_environment_at_all_is_said_and_the_run_says_it_failed(workspace: Path) -> None:
    process = cli("train", "recipe.yaml", "env.docker_dir=null", cwd=workspace)
    refused(process, 1, "env.docker_dir", "MCP_SERVER_URL")
    summary = json.loads((workspace / "runs" / "t" / "summary.json").read_text())
    assert (summary["status"], summary["error"]["kind"]) == ("failed", "environment")
    for more in (
        (),
        ("--resume",),
    ):  # nothing was trained, so a recipe that was put right is not in its own way
        refused(cli("train", "recipe.yaml", "env.docker_dir=nowhere", *more, cwd=workspace), 2, "nowhere")


def test_with_json_an_error_is_one_object_on_stdout(workspace: Path) -> None:
    process = cli("train", "recipe.yaml", "trainer.steps=many", "--json", cwd=workspace)
    assert process.returncode == 2
    assert json.loads(process.stdout)["error"]["kind"] == "recipe"
    assert "Traceback" not in process.stderr


def test_debug_shows_the_traceback(workspace: Path) -> None:
    process = cli("--debug", "train", "recipe.yaml", "trainer.steps=many", cwd=workspace)
    assert process.returncode == 2
    assert "Traceback" in process.stderr


def test_a_dry_run_writes_only_where_out_says(workspace: Path) -> None:
    import shlex

    import yaml

    before = {path: path.stat().st_mtime_ns for path in workspace.rglob("*") if path.is_file()}
    process = cli("train", "recipe.yaml", "--dry-run", cwd=workspace)
    assert process.returncode == 0, process.stderr
    assert shlex.split(process.stdout)[1:4] == ["-P", "-m", "aworld_train.adapter.verl.main"]
    assert "--out FOLDER writes verl.yaml" in process.stderr
    after = {path: path.stat().st_mtime_ns for path in workspace.rglob("*") if path.is_file()}
    assert after == before

    for _ in range(2):  # what it has written before is no run
        process = cli("train", "recipe.yaml", "--dry-run", "--out", "plan", cwd=workspace)
        assert process.returncode == 0, process.stderr
    assert str(workspace / "plan") in shlex.split(process.stdout)
    text = (workspace / "plan" / "verl.yaml").read_text()
    assert yaml.safe_load(text)["trainer"]["total_training_steps"] == 2
    assert "${" not in text
    refused(cli("train", "recipe.yaml", "--out", "plan", cwd=workspace), 2, "--dry-run")
    refused(
        cli("train", "recipe.yaml", "--dry-run", "--out", ".", cwd=workspace), 2, "not empty", "data, model"
    )


@pytest.mark.parametrize(
    ("launcher", "files"),
    [
        ("slurm", {"job.sbatch", "recipe.yaml"}),
        ("ray", {"job.json", "recipe.yaml"}),
        ("kubernetes", {"kubernetes.yaml", "recipe.yaml"}),
    ],
)
def test_a_dry_run_of_a_job_has_its_files_in_out(workspace: Path, launcher: str, files: set[str]) -> None:
    options = ("cluster.kubernetes.image=i", "cluster.kubernetes.claim=c", "cluster.kubernetes.env_image=e")
    command = ("train", "recipe.yaml", *options, "--launcher", launcher, "--dry-run")
    process = cli(*command, cwd=workspace)
    assert process.returncode == 0, process.stderr
    assert not (workspace / "runs").exists()
    process = cli(*command, "--out", "plan", "--json", cwd=workspace)
    assert process.returncode == 0, process.stderr
    assert {file.name for file in (workspace / "plan" / "launch").iterdir()} == files
    printed = json.loads(process.stdout)
    assert (workspace / printed["config"]).is_file()
    assert (printed["run_dir"], printed["seconds"]) == ("runs/t", None)
    assert any(str(workspace / "plan" / "launch") in argument for argument in printed["command"])


def test_one_task_is_built_without_validation_tasks(workspace: Path) -> None:
    (workspace / "one.jsonl").write_text('{"query": "1 + 1?", "answer": "2"}\n')
    command = ("dataset", "build", "jsonl", "--file", "one.jsonl", "--out", "one")
    built = cli(*command, cwd=workspace)
    assert built.returncode == 0 and "too few tasks for val" in built.stderr
    assert sorted(file.name for file in (workspace / "one").glob("*.parquet")) == ["train.parquet"]
    asked = cli(*command, "--force", "--split", "train=0.5,val=0.5", cwd=workspace)
    assert asked.returncode != 0
