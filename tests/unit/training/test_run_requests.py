"""SIGUSR1 asks a run to save a checkpoint and to stop."""

import os
import signal
from pathlib import Path

from aworld_train.adapter.base import SAVE_REQUEST
from aworld_train.training.run_requests import StopRequest


def test_without_the_signal_a_run_goes_on(tmp_path: Path) -> None:
    (tmp_path / SAVE_REQUEST).touch()
    request = StopRequest(tmp_path, 0.0)
    with request.listening():
        assert request.reason(5, 5) is None
    assert not (tmp_path / SAVE_REQUEST).exists(), "a request to an earlier attempt is none to this one"


def test_the_run_ends_once_a_new_checkpoint_and_its_metrics_are_there(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGUSR1)
    request = StopRequest(tmp_path, 1000.0)
    with request.listening():
        os.kill(os.getpid(), signal.SIGUSR1)
        assert request.reason(2, 3) is None
        assert (tmp_path / SAVE_REQUEST).exists()
        assert request.reason(4, 3) is None
        assert not request.fulfilled
        assert "did" in (request.reason(4, 4) or "")
        assert request.fulfilled
    assert not (tmp_path / SAVE_REQUEST).exists()
    assert signal.getsignal(signal.SIGUSR1) == before


def test_the_run_ends_without_a_new_checkpoint_when_its_time_is_over(tmp_path: Path) -> None:
    request = StopRequest(tmp_path, -1.0)
    with request.listening():
        os.kill(os.getpid(), signal.SIGUSR1)
        assert "no step ended" in (request.reason(2, 2) or "")
        assert "did" in (request.reason(3, 2) or ""), "a checkpoint without metrics is better than none"
    assert request.fulfilled


def test_an_early_stop_needs_the_checkpoint_of_the_step_that_was_validated(tmp_path: Path) -> None:
    request = StopRequest(tmp_path, -1.0)
    request.stop_early("No better since.", 4)
    assert request.received and request.reason(2, 4) is None
    assert (tmp_path / SAVE_REQUEST).exists(), "the step that is under way gets one"
    assert request.reason(5, 4) is None and not request.fulfilled
    assert request.reason(5, 5) == "No better since." and request.fulfilled
    ready = StopRequest(tmp_path, -1.0)
    ready.stop_early("No better since.", 4)
    assert ready.reason(4, 4) == "No better since."
    assert not (tmp_path / SAVE_REQUEST).exists()


def test_a_signal_gives_an_early_stop_an_end(tmp_path: Path) -> None:
    request = StopRequest(tmp_path, -1.0)
    with request.listening():
        request.stop_early("No better since.", 4)
        assert request.reason(2, 4) is None
        os.kill(os.getpid(), signal.SIGUSR1)
        assert "no step ended" in (request.reason(2, 4) or "")
        request.stop_early("Later.", 5)
        assert request.early == "No better since."
