"""A run restarts a limited number of times, after longer pauses, and not after it was asked to stop."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from aworld_train.errors import TransientFailure
from aworld_train.training import run
from aworld_train.training.progress import Progress
from aworld_train.training.run import Restarts
from aworld_train.training.run_requests import StopRequest

FAILURE = TransientFailure("A node was lost.")


class Notes(Progress):
    """Keeps what is shown, and does something at each line."""

    def __init__(self, at_note: Callable[[], None] = lambda: None):
        self.lines: list[str] = []
        self._at_note = at_note

    def note(self, line: str) -> None:
        self.lines.append(line)
        self._at_note()


def ask_to_stop() -> None:
    os.kill(os.getpid(), signal.SIGUSR1)


def test_a_run_is_restarted_as_often_as_it_may_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "_FIRST_SECONDS", 0.0)
    counted, notes = Restarts(2, StopRequest(tmp_path, 0.0)), Notes()
    for _ in range(2):
        counted.wait(FAILURE, notes)
    with pytest.raises(TransientFailure):
        counted.wait(FAILURE, notes)
    assert counted.done == 2
    assert notes.lines == [
        *("A node was lost.", "Restart 1 of 2 in 0 seconds."),
        *("A node was lost.", "Restart 2 of 2 in 0 seconds."),
    ]


def test_each_restart_waits_twice_as_long_up_to_a_limit(tmp_path: Path) -> None:
    counted = Restarts(9, StopRequest(tmp_path, 0.0))
    pauses = []
    for done in range(8):
        counted.done = done
        pauses.append(counted.pause)
    assert pauses == [5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 300.0, 300.0]


def test_a_run_that_was_asked_to_stop_is_not_restarted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "_FIRST_SECONDS", 0.0)
    stop_request, notes = StopRequest(tmp_path, 0.0), Notes()
    counted = Restarts(2, stop_request)
    with stop_request.listening():
        ask_to_stop()
        with pytest.raises(TransientFailure) as raised:
            counted.wait(FAILURE, notes)
    assert raised.value is FAILURE
    assert (counted.done, notes.lines) == (0, [])


def test_a_run_that_is_asked_to_stop_while_it_waits_is_not_restarted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "_LOOK_SECONDS", 0.001)
    stop_request = StopRequest(tmp_path, 0.0)
    counted = Restarts(2, stop_request)
    with stop_request.listening(), pytest.raises(TransientFailure):
        counted.wait(FAILURE, Notes(ask_to_stop))
    assert counted.done == 0
