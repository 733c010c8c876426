"""``aworld-train runs``: what is printed of runs, in text and as JSON, and what a run is made again from."""

import hashlib
import json
from pathlib import Path

import pytest
import yaml
from rich.console import Console
from typer.testing import CliRunner, Result

from aworld_train import __version__
from aworld_train.cli import console
from aworld_train.cli import runs as runs_command
from aworld_train.cli.runs import app
from aworld_train.errors import UsageError
from tests.run_folders import make_run


@pytest.fixture(autouse=True)
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "140")
    folder = tmp_path / "runs"
    folder.mkdir()
    return folder


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def test_runs_are_listed_with_their_course(runs: Path) -> None:
    make_run(runs, "good", aworld_train=__version__)
    make_run(runs, "cut", status="running", started="2026-03-01T00:00:00Z")
    lines = run("list").stdout.splitlines()
    assert lines[1].split() == [
        "cut",
        "killed",
        "2/2",
        "50.0%",
        "→",
        "75.0%",
        "0.500",
        "▁█",
        "1:15",
        "2026-03-01",
        "00:00",
        "models/tiny",
    ]
    assert lines[2].startswith("good  completed")
    listed = json.loads(run("list", "--json").stdout)["runs"]
    assert [(each["name"], each["status"], each["reward"]) for each in listed] == [
        ("cut", "killed", 0.5),
        ("good", "completed", 0.5),
    ]


LONG_NAME = "sweep-of-learning-rates-3e-5-seed-12"
CHECKPOINT = "runs/quickstart/checkpoints/global_step_8/actor/huggingface"


def test_a_list_says_what_each_evaluation_measured_on_a_line_of_its_own(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_run(runs, LONG_NAME)
    make_run(runs, "eval-a", eval={"agent": "recipe", "model": CHECKPOINT}, model={"name": CHECKPOINT})
    make_run(runs, "eval-b", eval={"agent": "oracle", "model": "oracle"}, model={"name": "oracle"})
    monkeypatch.setenv("COLUMNS", "80")
    subjects = {"eval-a": CHECKPOINT, "eval-b": "agent oracle", LONG_NAME: "models/tiny"}
    listed = json.loads(run("list", "--json").stdout)["runs"]
    assert {each["name"]: each["subject"] for each in listed} == subjects
    for is_terminal in (False, True):
        monkeypatch.setattr(console, "out", Console(force_terminal=is_terminal, width=80))
        header, *lines = run("list").stdout.splitlines()
        assert ("began" in header) != is_terminal
        for line in lines:
            assert line.rstrip().endswith(subjects[line.split()[0]]), line
    compared = run("compare", "eval-a", "eval-b").stdout
    assert CHECKPOINT in compared and "agent oracle" in compared and "75.0% (51% to 90%, n 16)" in compared


def test_a_folder_without_runs_says_so(runs: Path) -> None:
    listed = run("list")
    assert listed.exit_code == 0 and "There are no runs in runs" in listed.output
    assert json.loads(run("list", "--json").stdout) == {"runs": []}


@pytest.mark.parametrize("command", [["list"], ["show", "one"], ["episodes", "one"]])
def test_a_folder_of_runs_that_is_not_there_is_refused_with_the_nearest(command: list[str]) -> None:
    error = run(*command, "--runs", "rusn").exception
    assert isinstance(error, UsageError)
    assert "No such folder: rusn. Did you mean 'runs'? --runs names the folder" in str(error)


def test_a_run_is_shown_with_its_figures_and_origin(runs: Path) -> None:
    source = {"commit": "0123456789abcdef", "branch": "trunk", "changed_files": 1, "untracked_files": 2}
    make_run(runs, "good", source=source, model={"name": "models/tiny", "fingerprint": "f" * 64})
    text = run("show", "good").stdout
    assert "accuracy after     75.0% (51% to 90%, n 16)" in text
    assert "0123456789ab on trunk, 3 files changed" in text and "models/tiny (ffffffffffffffff)" in text
    assert "aworld-train train one.yaml" in text
    (reward,) = [line.split() for line in text.splitlines() if line.startswith("reward  ")]
    assert reward == ["reward", "0.25", "0.5", "0.25", "0.5", "▁█"]
    shown = json.loads(run("show", "good", "--json").stdout)
    assert shown["figures"]["val_accuracy"] == [[0, 0.5], [2, 0.75]]
    assert shown["manifest"]["source"] == source


@pytest.mark.parametrize("is_terminal", [False, True])
def test_a_comparison_has_every_value_whole_and_resolved(
    runs: Path, monkeypatch: pytest.MonkeyPatch, is_terminal: bool
) -> None:
    monkeypatch.setattr(console, "out", Console(force_terminal=is_terminal, width=80, color_system=None))
    monkeypatch.setattr(runs_command, "out", console.out)
    paths = {name: f"/models/{name * 90}" for name in "ab"}
    for name in "ab":
        recipe = {
            "name": name,
            "model": {"path": paths[name], "tokenizer": "${model.path}"},
            "agent": {"system_prompt": f"{name}\nTools?"},
            "trainer": {"steps": 2 if name == "a" else 3, "val_every": "${trainer.steps}"},
            "env": {"url": f"${{oc.env:URL_OF_{name.upper()}}}/${{name}}"},
            "verl": {"trainer": {"seed": "${data.seed}" if name == "a" else "${data.other}"}},
        }
        (make_run(runs, name) / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    lines = [line.split() for line in run("compare", "a", "b").stdout.splitlines()]
    for expected in (
        ["trainer.val_every", "2", "3"],
        ["env.url", "${oc.env:URL_OF_A}/a", "${oc.env:URL_OF_B}/b"],
        ["agent.system_prompt", r"a\nTools?", r"b\nTools?"],
        ["verl.trainer.seed", "${data.seed}", "${data.other}"],
        ["model.tokenizer", "a", paths["a"]],
        ["model.path", "b", paths["b"]],
    ):
        assert expected in lines


def test_runs_are_compared_by_recipe_and_result(runs: Path) -> None:
    for name, steps in (("a", 2), ("b", 3)):
        folder = make_run(runs, name)
        (folder / "recipe.yaml").write_text(
            yaml.safe_dump({"name": name, "trainer": {"steps": steps, "lr": 0.1}})
        )
    text = run("compare", "a", "b").stdout
    (steps_line,) = [line.split() for line in text.splitlines() if line.startswith("trainer.steps")]
    assert steps_line == ["trainer.steps", "2", "3"] and "trainer.lr" not in text
    compared = json.loads(run("compare", "a", "b", "--json").stdout)
    assert compared["recipe_differences"] == {"trainer.steps": [2, 3]}
    assert [each["name"] for each in compared["runs"]] == ["a", "b"]
    assert isinstance(run("compare", "a").exception, UsageError)


def test_figures_are_drawn_and_unknown_ones_refused(runs: Path) -> None:
    make_run(runs, "a")
    make_run(runs, "b")
    drawn = run("plot", "a", "b", "-f", "reward", "-f", "verl.actor/grad_norm", "-o", "picture.png")
    assert drawn.exit_code == 0, drawn.output
    assert Path("picture.png").read_bytes().startswith(b"\x89PNG")
    refused = run("plot", "a", "-f", "rewrad", "-o", "other.png").exception
    assert isinstance(refused, UsageError) and "Did you mean 'reward'?" in refused.message
    assert not Path("other.png").exists()


def test_a_run_is_made_again_with_the_same_data_only(runs: Path) -> None:
    data = Path("train.parquet")
    data.write_bytes(b"rows")
    hashes = {"train.parquet": hashlib.sha256(b"rows").hexdigest(), "${oc.env:VAL}": "x"}
    make_run(runs, "one", data_sha256=hashes, aworld_train="0.0.9", packages={"no-such-package": "1"})
    made = run("reproduce", "one", "--json")
    assert made.exit_code == 0, made.output
    result = json.loads(made.stdout)
    assert result["command"] == ["aworld-train", "train", "one-again.yaml"]
    assert result["changes"] == [
        f"aworld-train is {__version__}; it was 0.0.9.",
        "no-such-package is missing; it was 1.",
    ]
    recipe = yaml.safe_load(Path("one-again.yaml").read_text())
    assert (recipe["name"], recipe["trainer"]) == ("one-again", {"steps": 2})
    again = run("reproduce", "one").exception
    assert isinstance(again, UsageError) and "one-again.yaml exists" in again.message
    data.write_bytes(b"other rows")
    refused = run("reproduce", "one", "-o", "third.yaml").exception
    assert isinstance(refused, UsageError) and "train.parquet has changed" in refused.message
    data.unlink()
    refused = run("reproduce", "one", "-o", "third.yaml").exception
    assert isinstance(refused, UsageError) and "train.parquet is missing" in refused.message
    assert not Path("third.yaml").exists()
