"""Runs are read from their folders as they are: complete, under way, killed, half written."""

import fcntl
import json
import math
import subprocess
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from aworld_train.errors import UsageError
from aworld_train.masking import remember
from aworld_train.training.provenance import MAX_DIFF_BYTES, hardware, model_identity, source_code
from aworld_train.training.recorded_run import find_runs, open_run, recipe_differences
from aworld_train.training.sparkline import sparkline
from tests.run_folders import make_run


def test_a_run_is_read_with_its_figures(tmp_path: Path) -> None:
    make_run(tmp_path, "one")
    run = open_run("one", tmp_path)
    assert (run.status, run.started, run.validation("after")["accuracy"]) == (
        "completed",
        "2026-01-02T03:04:05Z",
        0.75,
    )
    assert run.series("reward") == [(1, 0.25), (2, 0.5)]
    assert run.series("val_accuracy") == [(0, 0.5), (2, 0.75)]
    assert run.series("verl.actor/grad_norm") == [(1, 3.0), (2, 2.0)]
    assert run.series("outcomes.answered") == [(2, 8.0)]
    names = run.figure_names()
    assert {"reward", "verl.actor/grad_norm", "outcomes.answered"} <= set(names) and "step" not in names


def test_a_run_is_running_while_its_folder_is_locked_and_killed_after(tmp_path: Path) -> None:
    folder = make_run(tmp_path, "one", status="running")
    assert open_run("one", tmp_path).status == "killed"
    with (folder / "run.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert open_run("one", tmp_path).status == "running"
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # looking took nothing away
    assert open_run("one", tmp_path).status == "killed"


@pytest.mark.parametrize("file", ["summary.json", "manifest.json", "metrics.jsonl"])
@pytest.mark.parametrize("content", [None, b"", b'{"status": "comp', b"\xff\xfe", b"[1]", b"3"])
def test_a_file_that_is_missing_or_half_written_hides_nothing_else(
    tmp_path: Path, file: str, content: bytes | None
) -> None:
    folder = make_run(tmp_path, "one")
    if content is None:
        (folder / file).unlink()
    else:
        (folder / file).write_bytes(content)
    run = open_run("one", tmp_path)
    assert run.figure_names() == [] if file == "metrics.jsonl" else run.series("reward")
    assert run.status == ("unknown" if file == "summary.json" else "completed")
    assert run.started == ("" if file == "manifest.json" else "2026-01-02T03:04:05Z")
    assert [each.name for each in find_runs(tmp_path)] == ["one"]


def test_a_torn_last_line_of_metrics_is_left_out(tmp_path: Path) -> None:
    folder = make_run(tmp_path, "one")
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"step": 3, "rew')
    assert [row["step"] for row in open_run("one", tmp_path).rows] == [0, 1, 2]


def test_runs_are_listed_newest_first_and_other_folders_are_not(tmp_path: Path) -> None:
    make_run(tmp_path, "old", started="2026-01-01T00:00:00Z")
    make_run(tmp_path, "new", started="2026-02-01T00:00:00Z")
    (tmp_path / "notes").mkdir()
    (tmp_path / "file.txt").write_text("x")
    assert [run.name for run in find_runs(tmp_path)] == ["new", "old"]
    assert find_runs(tmp_path / "nowhere") == []


def test_a_run_that_is_not_there_is_named_with_the_nearest(tmp_path: Path) -> None:
    make_run(tmp_path, "quickstart")
    with pytest.raises(UsageError, match=r"Did you mean 'quickstart'\?.*--runs"):
        open_run("quickstrat", tmp_path)
    assert open_run(str(tmp_path / "quickstart"), Path("elsewhere")).name == "quickstart"


def test_recipes_differ_in_the_keys_that_differ(tmp_path: Path) -> None:
    for name, steps, extra in (("a", 2, {}), ("b", 3, {"seed": 1}), ("c", 3, {})):
        folder = make_run(tmp_path, name)
        recipe = {"name": name, "trainer": {"steps": steps, "lr": 0.1, **extra}, "agent": {}}
        (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    runs = [open_run(name, tmp_path) for name in "abc"]
    assert recipe_differences(runs) == {"trainer.seed": [None, 1, None], "trainer.steps": [2, 3, 3]}
    assert recipe_differences(runs[:1] * 2) == {}


finite = st.floats(allow_nan=False, allow_infinity=False, width=32)


@given(st.lists(finite, min_size=1, max_size=100), st.integers(1, 30))
def test_a_sparkline_has_its_width_and_its_greatest_where_the_values_have_it(
    values: list[float], width: int
) -> None:
    line = sparkline(values, width)
    assert len(line) == min(len(values), width)
    if len(values) <= width and len(set(values)) > 1:
        assert line[values.index(max(values))] == "█" and line[values.index(min(values))] == "▁"


def test_a_sparkline_of_equal_or_missing_values() -> None:
    assert sparkline([2, 2, 2]) == "▄▄▄"
    assert sparkline([1, math.nan, 2]) == "▁·█"
    assert sparkline([math.inf]) == "·"
    assert sparkline([]) == ""


def git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b.example", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "-C", str(folder), *identity, *arguments], check=True, capture_output=True)


def test_the_commit_and_the_masked_change_since_are_kept(tmp_path: Path) -> None:
    git(tmp_path, "init", "-b", "trunk")
    (tmp_path / "agent.py").write_text("one = 1\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "one")
    facts, diff = source_code(tmp_path)
    assert facts is not None and len(facts.pop("commit")) == 40
    assert (facts, diff) == ({"branch": "trunk", "changed_files": 0, "untracked_files": 0}, "")
    remember("my-own-secret-key", "${oc.env:KEY}")
    (tmp_path / "agent.py").write_text('one = "my-own-secret-key"\n')
    (tmp_path / "new.py").write_text("two = 2\n")
    facts, diff = source_code(tmp_path)
    assert facts is not None and (facts["changed_files"], facts["untracked_files"]) == (1, 1)
    assert '+one = "${oc.env:KEY}"' in diff and "my-own-secret-key" not in diff
    (tmp_path / "agent.py").write_text("x = 1\n" * MAX_DIFF_BYTES)
    assert len(source_code(tmp_path)[1]) < MAX_DIFF_BYTES + 100


def test_outside_of_a_repository_there_is_no_commit(tmp_path: Path) -> None:
    assert source_code(tmp_path) == (None, "")


def test_a_model_is_told_from_another_by_its_files(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    weights = bytearray(5 << 20)
    (model / "model.safetensors").write_bytes(weights)
    first = model_identity(str(model))
    assert first == model_identity(str(model)) and first is not None and len(first["fingerprint"]) == 64
    weights[-1] = 1
    (model / "model.safetensors").write_bytes(weights)
    assert model_identity(str(model)) != first
    assert model_identity("nobody/has-this") == {"name": "nobody/has-this"}
    assert model_identity(None) is None


def test_the_machine_is_described() -> None:
    facts = hardware()
    assert facts["cores"] >= 1 and facts["memory_gb"] > 0 and facts["host"]
    assert json.loads(json.dumps(facts)) == facts
