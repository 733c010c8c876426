"""How a framework is started: again only if nothing was done, and with one clear error at the end."""

import sys
from pathlib import Path

import pytest

from aworld_train.adapter.base import RunPlan
from aworld_train.errors import TrainingFailure
from aworld_train.training.environment import RunEnvironment
from aworld_train.training.start import log_file, run_plan
from tests.second_framework import Counting

SLOW = "Error: too slow."


class SlowToStart(Counting):
    def start_failed(self, log: str) -> bool:
        return SLOW in log


def run(folder: Path, script: str) -> list[str]:
    """Run a script as the framework; returns the notes."""
    plan = RunPlan(
        files={},
        config="",
        command=(sys.executable, "-c", script),
        environment=lambda start: {"M": str(start.metrics)},
    )
    notes: list[str] = []
    run_plan(
        SlowToStart(),
        plan,
        folder,
        RunEnvironment("http://127.0.0.1:9/mcp", "", replayed=True),
        recovery_timeout=1.0,
        metrics_file=folder / "metrics",
        watch=lambda: None,
        worst_cause=lambda: "the engine failed.",
        note=notes.append,
    )
    return notes


def test_a_start_in_which_nothing_was_done_is_repeated(tmp_path: Path) -> None:
    script = f"""
import pathlib
starts = pathlib.Path("starts")
n = len(starts.read_text()) if starts.exists() else 0
starts.write_text("x" * (n + 1))
if n < 2:
    raise SystemExit({SLOW!r})
"""
    assert [note.rpartition("; ")[2] for note in run(tmp_path, script)] == ["start 2 of 3.", "start 3 of 3."]
    assert (tmp_path / "starts").read_text() == "xxx"


def test_the_third_slow_start_is_the_error_with_one_full_stop_each(tmp_path: Path) -> None:
    with pytest.raises(TrainingFailure) as failure:
        run(tmp_path, f"open('starts', 'a').write('x'); raise SystemExit({SLOW!r})")
    assert (tmp_path / "starts").read_text() == "xxx"
    log = log_file(tmp_path, SlowToStart())
    assert failure.value.message == (
        "The framework counting ended with exit code 1: Error: too slow. Episodes were lost to: the engine failed. "
        f"Its log is {log}."
    )


def test_a_run_that_has_metrics_is_not_started_again(tmp_path: Path) -> None:
    script = f"""
import os
open("starts", "a").write("x")
open(os.environ["M"], "w").write("1")
raise SystemExit({SLOW!r})
"""
    with pytest.raises(TrainingFailure):
        run(tmp_path, script)
    assert (tmp_path / "starts").read_text() == "x"
