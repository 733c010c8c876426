"""A part of a process environment is kept running, in folders that are empty whenever it starts."""

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from aworld_train.serving import local
from aworld_train.serving.local import ManagedProcess


@pytest.fixture
def process(tmp_path: Path) -> Iterator[ManagedProcess]:
    """A process that runs until it is ended."""
    process = ManagedProcess("none", {}, [tmp_path / "folder"])
    process._command = ["/bin/sleep", "600"]
    yield process
    process.stop()
    process.end(time.monotonic() + 5)


def kill(process: ManagedProcess) -> None:
    assert process._process is not None
    process._process.kill()
    process._process.wait()
    process.update()


def test_one_that_ends_is_started_again_in_empty_folders(process: ManagedProcess, tmp_path: Path) -> None:
    process.start_if_due()
    first = process.pid
    (tmp_path / "folder" / "left").mkdir()
    process.update()
    process.start_if_due()
    assert process.pid == first
    kill(process)
    assert process.pid is None
    process.start_if_due()
    assert process.pid not in (None, first)
    assert list((tmp_path / "folder").iterdir()) == []
    assert (tmp_path / "folder").stat().st_mode & 0o077 == 0


def test_one_that_keeps_ending_has_to_wait_and_one_that_lasted_has_not(
    process: ManagedProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    waited = []
    for lasts in (1.0, 1.0, 1.0, 1.0, 1.0, 100.0, 1.0):
        process.start_if_due()
        now += lasts
        kill(process)
        began = now
        process.start_if_due()
        while process.pid is None:
            now += 0.5
            process.start_if_due()
        waited.append(now - began)
    assert waited == [0.0, 0.5, 2.0, 10.0, 10.0, 0.0, 0.5]
    monkeypatch.undo()


def test_one_that_does_not_listen_is_ended_at_the_deadline(process: ManagedProcess) -> None:
    process._command = ["/bin/bash", "-c", "trap '' TERM; while true; do sleep 0.1; done"]
    process.start_if_due()
    time.sleep(0.3)
    process.stop()
    child = process._process
    assert child is not None
    process.end(time.monotonic() + 0.5)
    assert child.returncode == -signal.SIGKILL


def test_a_log_that_has_become_long_is_put_aside_and_goes_on_for_who_writes_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "MAX_LOG_BYTES", 100)
    log, old = tmp_path / "log", tmp_path / "log.1"
    local.rotate_log(log, old)
    with log.open("ab", buffering=0) as writer:
        writer.write(b"a" * 100)
        local.rotate_log(log, old)
        assert not old.exists()
        for letter in (b"b", b"c"):
            writer.write(letter * 50)
            local.rotate_log(log, old)
            writer.write(b"-" * 60)
    assert (log.read_bytes(), old.read_bytes()) == (b"-" * 60, b"-" * 60 + b"c" * 50)
    assert old.stat().st_mode & 0o077 == 0


def test_no_more_than_the_end_is_kept_of_a_log_that_has_grown_too_fast(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "MAX_LOG_BYTES", 100)
    (tmp_path / "log").write_bytes(b"a" * 1000 + b"b" * 100)
    local.rotate_log(tmp_path / "log", tmp_path / "log.1")
    assert ((tmp_path / "log").read_bytes(), (tmp_path / "log.1").read_bytes()) == (b"", b"b" * 100)
