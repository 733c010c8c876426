"""SIGUSR1 asks a run to save a checkpoint and to stop."""

import os
import signal
from pathlib import Path

from aworld_train.adapter.base import SAVE_REQUEST
from aworld_train.training.stop_request import StopRequest


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
