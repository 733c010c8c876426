"""Builds of two million word problems stay within 500 MB, whatever the kind of the file, with and without repeats."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.word_problems import problems, write_csv, write_jsonl, write_parquet

ROWS = 2_000_000
MAX_MEMORY = 500 * 10**6

Writer = Callable[[Path, Iterator[tuple[str, str, str]]], None]

BUILD = """
import sys, time
from pathlib import Path
from aworld_train.cli.main import main
try:
    main()
finally:
    peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    print(int(peak.split()[1]) * 1024, time.process_time())
"""
"""The command, which then prints its peak memory in bytes and its processor time in seconds."""


@pytest.mark.bench
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("source", "write", "repeated"),
    [
        ("jsonl", write_jsonl, 0.0),
        ("jsonl", write_jsonl, 0.12),
        ("csv", write_csv, 0.0),
        ("parquet", write_parquet, 0.0),
    ],
    ids=["jsonl", "jsonl-with-repeats", "csv", "parquet"],
)
def test_two_million_rows_are_built_within_500_mb(
    tmp_path: Path, source: str, write: Writer, repeated: float
) -> None:
    path, out = tmp_path / f"in.{source}", tmp_path / "out"
    write(path, problems(ROWS, repeated))
    arguments = [
        "dataset",
        "build",
        source,
        "--file",
        path,
        "--out",
        out,
        "--split",
        "train=0.95,val=0.05",
        "-q",
    ]
    done = subprocess.run(
        [sys.executable, "-c", BUILD, *arguments], capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stderr
    peak, seconds = done.stdout.split()
    print(
        f"\n{source}, {repeated:.0%} repeats: {int(peak) / 1e6:.0f} MB, {float(seconds):.1f} s of processor time"
    )
    assert int(peak) <= MAX_MEMORY
