"""``aworld-train runs export``: what is written and said."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from aworld_train.cli.runs import app
from aworld_train.errors import ExportError, UsageError
from tests.stored_runs import make_stored_run, write_run_files


@pytest.fixture(autouse=True)
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    make_stored_run(tmp_path / "runs", steps=1, tasks=1)
    return tmp_path / "runs"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["export", *arguments])


def test_the_counts_are_said() -> None:
    done = run("one", "--format", "parquet", "--out", "calls.parquet")
    assert done.exit_code == 0, done.output
    assert "calls.parquet has 12 model calls of 8 episodes." in done.stderr and done.stdout == ""
    done = run("one", "--format", "inspect", "--out", "a.eval", "--where", "phase=val", "--json")
    assert json.loads(done.stdout) == {
        "file": "a.eval",
        "format": "inspect",
        "episodes": 4,
        "entries": 4,
        "without_content": 0,
        "bytes": Path("a.eval").stat().st_size,
    }


def test_what_is_left_out_is_said(tmp_path: Path) -> None:
    make_stored_run(tmp_path / "others", "two", steps=1, tasks=1, keep="failures")
    done = run("two", "--runs", "others", "--format", "messages", "--out", "a.jsonl")
    assert "4 episodes are left out" in done.stderr


def test_nothing_is_an_error() -> None:
    done = run("one", "--format", "messages", "--out", "a", "--where", "reward=7")
    assert isinstance(done.exception, ExportError)


def test_a_run_without_a_store_is_a_usage_error(runs: Path) -> None:
    (runs / "bare").mkdir()
    write_run_files(runs / "bare", "bare", 1)
    done = run("bare", "--format", "messages", "--out", "a")
    assert isinstance(done.exception, UsageError) and "has no store" in str(done.exception)
