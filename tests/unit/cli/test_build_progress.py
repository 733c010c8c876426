"""The progress of a build: rows, total and rate in a line, live in a terminal and once a minute elsewhere."""

import io
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from aworld_train.cli import dataset_build
from aworld_train.cli.dataset_build import LIVE_AFTER_SECONDS, shown
from aworld_train.dataset.progress import BuildProgress, known_rows

MAX_SECONDS = 30.0


def console(*, terminal: bool) -> Console:
    return Console(file=io.StringIO(), force_terminal=terminal, width=60, _environ={"TERM": "xterm"})


def printed(target: Console) -> str:
    assert isinstance(target.file, io.StringIO)
    return target.file.getvalue()


def wait_for_text(target: Console) -> str:
    deadline = time.monotonic() + MAX_SECONDS
    while not printed(target) and time.monotonic() < deadline:
        time.sleep(0.01)
    return printed(target)


@pytest.mark.parametrize("terminal", [True, False])
def test_a_build_that_ends_at_once_shows_nothing(terminal: bool) -> None:
    target = console(terminal=terminal)
    with shown(BuildProgress(), target):
        pass
    assert printed(target) == ""


def test_a_terminal_shows_nothing_in_the_first_two_seconds() -> None:
    assert LIVE_AFTER_SECONDS == 2
    target, began = console(terminal=True), time.monotonic()
    with shown(BuildProgress(), target):
        assert "starting" in wait_for_text(target) or "\x1b" in printed(target)
        assert time.monotonic() - began >= LIVE_AFTER_SECONDS


def test_a_log_gets_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    assert dataset_build.LINE_SECONDS == 60
    monkeypatch.setattr(dataset_build, "LINE_SECONDS", 0.05)
    target, progress = console(terminal=False), BuildProgress()
    progress.begin("reading a rather long name of a file [of tasks] that is wider than the terminal.jsonl")
    with shown(progress, target):
        wait_for_text(target)
    assert set(printed(target).splitlines()) == {progress.phase}


def test_the_line_says_rows_total_and_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: seconds)
    progress = BuildProgress()
    assert progress.text() == "starting"
    progress.begin("reading tasks.jsonl")
    seconds, progress.rows = 110.0, 123_456
    assert progress.text() == "reading tasks.jsonl · 123,456 rows · 12,000 rows/s"
    progress.begin("writing", total=2000)
    seconds, progress.rows = 120.0, 500
    assert progress.text() == "writing · 500 of 2,000 rows (25%) · 50 rows/s"


def test_only_parquet_files_say_how_many_rows_they_have(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a.parquet", "b.parquet")]
    for path in paths:
        pq.write_table(pa.table({"query": ["a", "b", "c"]}), path)
    damaged = tmp_path / "c.parquet"
    damaged.write_bytes(b"no parquet")
    assert known_rows(paths) == 6
    assert known_rows([*paths, tmp_path / "a.jsonl"]) is None
    assert known_rows([]) is None and known_rows([damaged]) is None
