"""A part of a process environment is kept running, in folders that are empty whenever it starts."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from aworld_train.serving import local
from aworld_train.serving.local import ManagedProcess


@pytest.fixture
def part(tmp_path: Path) -> Iterator[ManagedProcess]:
    """A part that runs until it is ended."""
    made = ManagedProcess("none", {}, [tmp_path / "folder"])
    made._command = ["/bin/sleep", "600"]
    yield made
    made.stop()
    made.end(time.monotonic() + 5)


def kill(part: ManagedProcess) -> None:
    assert part._process is not None
    part._process.kill()
    part._process.wait()
    part.look()


def test_one_that_ends_is_started_again_in_empty_folders(part: ManagedProcess, tmp_path: Path) -> None:
    part.keep()
    first = part.pid
    (tmp_path / "folder" / "left").mkdir()
    part.look()
    part.keep()
    assert part.pid == first
    kill(part)
    assert part.pid is None
    part.keep()
    assert part.pid not in (None, first)
    assert list((tmp_path / "folder").iterdir()) == []
    assert (tmp_path / "folder").stat().st_mode & 0o077 == 0


def test_one_that_keeps_ending_has_to_wait_and_one_that_lasted_has_not(
    part: ManagedProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    waited = []
    for lasts in (1.0, 1.0, 1.0, 1.0, 1.0, 100.0, 1.0):
        part.keep()
        now += lasts
        kill(part)
        began = now
        part.keep()
        while part.pid is None:
            now += 0.5
            part.keep()
        waited.append(now - began)
    assert waited == [0.0, 0.5, 2.0, 10.0, 10.0, 0.0, 0.5]
    monkeypatch.undo()


def test_one_that_does_not_listen_is_ended_at_the_deadline(part: ManagedProcess) -> None:
    part._command = ["/bin/bash", "-c", "trap '' TERM; while true; do sleep 0.1; done"]
    part.keep()
    time.sleep(0.3)
    part.stop()
    began = time.monotonic()
    part.end(began + 0.5)
    assert 0.4 < time.monotonic() - began < 30


def test_a_log_that_has_become_long_is_put_aside_and_goes_on_for_who_writes_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "MAX_LOG_BYTES", 100)
    log, old = tmp_path / "log", tmp_path / "log.1"
    local.bound_log(log, old)
    with log.open("ab", buffering=0) as writer:
        writer.write(b"a" * 100)
        local.bound_log(log, old)
        assert not old.exists()
        for letter in (b"b", b"c"):
            writer.write(letter * 50)
            local.bound_log(log, old)
            writer.write(b"-" * 60)
    assert (log.read_bytes(), old.read_bytes()) == (b"-" * 60, b"-" * 60 + b"c" * 50)
    assert old.stat().st_mode & 0o077 == 0


def test_no_more_than_the_end_is_kept_of_a_log_that_has_grown_too_fast(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "MAX_LOG_BYTES", 100)
    (tmp_path / "log").write_bytes(b"a" * 1000 + b"b" * 100)
    local.bound_log(tmp_path / "log", tmp_path / "log.1")
    assert ((tmp_path / "log").read_bytes(), (tmp_path / "log.1").read_bytes()) == (b"", b"b" * 100)
