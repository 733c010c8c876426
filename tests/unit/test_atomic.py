"""A directory is replaced whole, and what killed processes left of theirs goes with the next one."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from aworld_train import atomic

WRITER = """
import sys, time
from pathlib import Path
from aworld_train import atomic
with atomic.replacing(Path(sys.argv[1]), lambda out: None) as folder:
    (folder / "part.bin").write_bytes(b"x")
    print("writing", flush=True)
    time.sleep(60)
"""


def replace(out: Path) -> None:
    with atomic.replacing(out, lambda out: None) as folder:
        (folder / "whole.txt").write_text("x")


def hidden(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.name.startswith(".")]


def grow_old(path: Path) -> None:
    os.utime(path, (0, 0))


@pytest.mark.parametrize("name", ["out", "o[u]t"])
def test_what_a_killed_writer_left_is_removed_by_the_next_and_a_living_ones_stays(
    tmp_path: Path, name: str
) -> None:
    out = tmp_path / name
    with subprocess.Popen([sys.executable, "-c", WRITER, out], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None and writer.stdout.readline() == b"writing\n"
        (left,) = hidden(tmp_path)
        grow_old(left)
        replace(out)
        assert hidden(tmp_path) == [left] and list(out.iterdir()) == [out / "whole.txt"]
        writer.send_signal(signal.SIGKILL)
        writer.wait(timeout=10)
    replace(out)
    assert hidden(tmp_path) == []


def test_what_is_young_or_no_half_written_directory_stays(tmp_path: Path) -> None:
    young, moved, own = (tmp_path / f".out.{name}" for name in ("aaaaaaaa", "bbbbbbbb", "cccccccc"))
    (young / "new").mkdir(parents=True)
    # Killed between two renames: the only copy of what was there.
    (moved / "new").mkdir(parents=True)
    (moved / "old").mkdir()
    own.mkdir()
    for path in (moved, own):
        grow_old(path)
    replace(tmp_path / "out")
    assert sorted(hidden(tmp_path)) == [young, moved, own]
