"""The watch over VeRL's processes ends with the queue that VeRL closes, and not before."""

import time
from collections.abc import Iterator

import pytest
import ray
import transfer_queue

from aworld_train.adapter.verl import liveness
from aworld_train.waits import report_loss


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(liveness, "_death", None)
    monkeypatch.setattr(liveness, "_is_over", False)
    monkeypatch.setattr(liveness, "_LOOK_SECONDS", 0.01)
    monkeypatch.setattr(transfer_queue, "close", lambda: None)
    monkeypatch.setattr(ray, "wait", lambda pending, **options: (pending, []))
    yield
    report_loss("")


def lose(reference: object) -> None:
    raise ray.exceptions.RayError("The actor is dead because it was killed by `ray.kill`.")


def looked() -> None:
    time.sleep(0.2)


def test_a_process_that_dies_in_training_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "get", lose)
    liveness.watch({"the queue's storage": lambda: "call"})
    looked()
    with pytest.raises(RuntimeError, match=r"the queue's storage died: .* killed by `ray\.kill`"):
        liveness.check()


def test_what_ends_with_the_queue_has_not_died(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "get", lambda reference: None)
    liveness.watch({"the queue's storage": lambda: "call"})
    looked()
    transfer_queue.close()
    monkeypatch.setattr(ray, "get", lose)
    looked()
    liveness.check()
