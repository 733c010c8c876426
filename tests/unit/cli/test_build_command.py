"""`dataset build` as a process: what a terminal shows, and what is left when a signal ends it."""

import fcntl
import json
import os
import pty
import random
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests import warm

MAX_SECONDS = 60.0
BUILD = [sys.executable, "-m", "aworld_train", "dataset", "build"]

SLOW_SOURCE = """
import time
def tasks():
    for number in range({count}):
        time.sleep({seconds})
        yield {{"query": f"What is the capital of country {{number}}?", "answer": str(number)}}
"""


@pytest.fixture
def quick(tmp_path: Path) -> str:
    """A source of a few hundred tasks that takes no time."""
    return _source(tmp_path / "quick.py", 300, 0)


@pytest.fixture
def slow(tmp_path: Path) -> str:
    """A source that takes three seconds or more."""
    return _source(tmp_path / "slow.py", 300, 0.01)


def _source(path: Path, count: int, seconds: float) -> str:
    path.write_text(SLOW_SOURCE.format(count=count, seconds=seconds))
    return f"{path}:tasks"


def build(*arguments: str | Path) -> "subprocess.CompletedProcess[str]":
    return warm.run(*BUILD[1:], *map(str, arguments), timeout=MAX_SECONDS)


def build_in_terminal(*arguments: str | Path) -> tuple[int, str, str]:
    """Exit code, what the terminal gets as stderr of the command, and stdout, which is a pipe."""
    controller, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color"}
    with subprocess.Popen(
        [*BUILD, *arguments], stdin=terminal, stdout=subprocess.PIPE, stderr=terminal, env=environment
    ) as process:
        os.close(terminal)
        screen = _read_until_closed(controller)
        assert process.stdout is not None
        output = process.stdout.read().decode()
        return process.wait(timeout=MAX_SECONDS), screen, output


def _read_until_closed(controller: int) -> str:
    text, deadline = b"", time.monotonic() + MAX_SECONDS
    while select.select([controller], [], [], max(deadline - time.monotonic(), 0))[0]:
        try:
            chunk = os.read(controller, 65536)
        except OSError:  # Linux's way of saying that nobody has the terminal open
            break
        text += chunk
    os.close(controller)
    return text.decode()


def test_a_terminal_shows_the_file_rows_and_their_rate(slow: str, tmp_path: Path) -> None:
    code, screen, output = build_in_terminal(slow, "--out", tmp_path / "out")
    assert code == 0 and "written" in output
    shown = [int(rows) for rows in re.findall(r"reading slow\.py\S* · (\d+) rows · \d+ rows/s", screen)]
    assert len(shown) > 1 and shown == sorted(shown) and shown[0] < shown[-1] <= 300
    # At the end the line is erased and the cursor shown again.
    end = screen.rpartition("rows/s")[2]
    assert "\x1b[?25h" in end and "\x1b[2K" in end


@pytest.mark.parametrize("option", ["--quiet", "--json"])
def test_quiet_and_json_show_no_progress_in_a_terminal(slow: str, tmp_path: Path, option: str) -> None:
    code, screen, output = build_in_terminal(slow, "--out", tmp_path / "out", option)
    assert (code, screen) == (0, "")
    assert output == "" if option == "--quiet" else json.loads(output)["rows"] == {"train": 270, "val": 30}


def test_quiet_with_json_prints_the_result(quick: str, tmp_path: Path) -> None:
    done = build(quick, "--out", tmp_path / "out", "-q", "--json")
    assert (done.returncode, done.stderr) == (0, "") and json.loads(done.stdout)["seen"] == 300


def test_quiet_still_reports_an_error(quick: str, tmp_path: Path) -> None:
    done = build(quick, "--out", tmp_path, "--quiet")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: --out") and done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("number", "code", "line"),
    [(signal.SIGTERM, 143, "error: terminated\n"), (signal.SIGINT, 130, "error: interrupted\n")],
)
def test_a_signal_ends_a_build_in_one_line_and_nothing_is_left(
    slow: str, tmp_path: Path, number: signal.Signals, code: int, line: str
) -> None:
    out = tmp_path / "data" / "out"
    with running(slow, out) as process:
        wait_for_files(out.parent)
        process.send_signal(number)
        output, errors = process.communicate(timeout=MAX_SECONDS)
    assert (process.returncode, output, errors) == (code, "", line)
    assert list(out.parent.iterdir()) == []


def test_a_second_build_to_a_folder_is_refused_and_the_first_is_not_disturbed(
    slow: str, quick: str, tmp_path: Path
) -> None:
    out = tmp_path / "data" / "out"
    with running(slow, out) as process:
        wait_for_files(out.parent)
        second = build(quick, "--out", out)
        output, errors = process.communicate(timeout=MAX_SECONDS)
    assert second.returncode == 1
    assert "another process is writing there now; wait until it has ended" in second.stderr
    assert (process.returncode, errors) == (0, "") and "300" in output
    assert list(out.parent.iterdir()) == [out]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_build_killed_at_any_moment_leaves_a_whole_dataset_and_the_next_leaves_nothing_else(
    quick: str, tmp_path: Path, number: signal.Signals
) -> None:
    out, rng = tmp_path / "data" / "out", random.Random(7)
    began = time.monotonic()
    assert build(quick, "--out", out, "--seed", "0").returncode == 0
    seconds = time.monotonic() - began
    for seed in range(1, 9):
        with running(quick, out, "--seed", str(seed)) as process:
            time.sleep(rng.uniform(0.3, 1.1) * seconds)
            process.send_signal(number)
            process.communicate(timeout=MAX_SECONDS)
        assert dataset_seed(out) in range(seed + 1)
        if number == signal.SIGTERM:
            assert list(out.parent.iterdir()) == [out]
    assert build(quick, "--out", out, "--seed", "99").returncode == 0
    assert list(out.parent.iterdir()) == [out] and dataset_seed(out) == 99


@contextmanager
def running(source: str, out: Path, *options: str) -> Iterator["subprocess.Popen[str]"]:
    command = [*BUILD, source, "--out", str(out), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                process.kill()


def wait_for_files(folder: Path) -> None:
    """Wait until a build has begun to write beside its --out."""
    deadline = time.monotonic() + MAX_SECONDS
    while time.monotonic() < deadline:
        if any(folder.glob(".*.partial/new/dropped.jsonl")):
            return
        time.sleep(0.01)
    raise AssertionError(f"nothing is written in {folder}")


def dataset_seed(out: Path) -> int:
    """The seed of a dataset whose files are all there, by their hashes."""
    from aworld_train.atomic import sha256_of

    manifest = json.loads((out / "dataset.json").read_text())
    assert {path.name for path in out.iterdir()} == {"dataset.json", *manifest["outputs"]}
    assert all(sha256_of(out / name) == digest for name, digest in manifest["outputs"].items())
    return int(manifest["seed"])
