"""The watch over VeRL's processes ends with the queue that VeRL closes, and not before."""

import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import ray
import transfer_queue
from transfer_queue import interface as queue

from aworld_train import waits
from aworld_train.adapter.verl import liveness

DEAD = ray.exceptions.RayError("The actor is dead because it was killed by `ray.kill`.")


@pytest.fixture(autouse=True)
def closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """How often VeRL's own function has closed the queue."""
    calls: list[str] = []
    monkeypatch.setattr(liveness, "_death", None)
    monkeypatch.setattr(liveness, "_is_over", False)
    monkeypatch.setattr(liveness, "_LOOK_SECONDS", 0.0)
    monkeypatch.setattr(transfer_queue, "close", lambda: calls.append("closed"))
    yield calls
    waits.report_loss("")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> dict[str, Callable[[], Any]]:
    """Calls of two processes, each of which ends at once: two as they should, and then the second process has died."""
    ends: dict[str, Any] = {"the storage": ["ended"] * 5, "the controller": ["ended", "ended", DEAD]}

    def get(reference: tuple[str, object]) -> None:
        _, end = reference
        if isinstance(end, Exception):
            raise end

    def wait(pending: list[Any], **options: Any) -> tuple[list[Any], list[Any]]:
        assert options == {"num_returns": 2, "timeout": 0}
        return pending, []

    monkeypatch.setattr(ray, "get", get)
    monkeypatch.setattr(ray, "wait", wait)
    return {name: lambda name=name: (name, ends[name].pop(0)) for name in ends}  # type: ignore[misc]


def test_a_process_that_dies_in_training_is_reported(calls: dict[str, Callable[[], Any]]) -> None:
    liveness.check()
    liveness._watch_always(calls)
    death = f"the controller died: {DEAD}"
    with pytest.raises(RuntimeError) as caught:
        liveness.check()
    assert str(caught.value) == waits._loss == death


def test_what_ends_with_the_queue_has_not_died(
    calls: dict[str, Callable[[], Any]], closed: list[str]
) -> None:
    liveness._end_with_the_queue()
    transfer_queue.close()
    assert closed == ["closed"]
    liveness._watch_always(calls)
    liveness.check()
    assert waits._loss == ""


def test_the_watch_is_a_thread_that_no_end_of_the_process_waits_for(
    monkeypatch: pytest.MonkeyPatch, closed: list[str]
) -> None:
    watched: list[tuple[Any, bool]] = []

    def watch_always(calls: Any) -> None:
        watched.append((calls, threading.current_thread().daemon))

    monkeypatch.setattr(liveness, "_watch_always", watch_always)
    liveness.watch({"the storage": len})
    for thread in threading.enumerate():
        if thread.name == "liveness":
            thread.join()
    transfer_queue.close()
    assert watched == [({"the storage": len}, True)]
    assert liveness._is_over and closed == ["closed"]


@pytest.mark.parametrize(
    ("storage", "names"),
    [
        (None, []),
        ({"SimpleStorage": {"a": 1}}, ["the queue's storage"]),
        ({"SimpleStorage": {"a": 1, "b": 2}}, ["the queue's storage 0", "the queue's storage 1"]),
    ],
)
def test_the_queue_s_processes_are_called_by_their_names(
    storage: Any, names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def actor(call: str) -> Any:
        return SimpleNamespace(__ray_ready__=SimpleNamespace(remote=call))

    storage = storage and {kind: {key: actor(f"call {key}") for key in of} for kind, of in storage.items()}
    monkeypatch.setattr(queue, "_TQ_STORAGE", storage)
    monkeypatch.setattr(queue, "_TQ_CONTROLLER", actor("call"))
    expected = dict(zip(names, ("call a", "call b"), strict=False))
    assert liveness.queue_calls() == expected | {"the queue's controller": "call"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("The actor died.\n  It was KILLED by the kernel. \nclass_name: A", "It was KILLED by the kernel."),
        ("It was killed.\nWorker exit type: SYSTEM_ERROR\npid: 7", "Worker exit type: SYSTEM_ERROR"),
        ("Out of memory.\npid: 7", "Out of memory."),
        ("The actor died.\n\nNobody knows.\n", "Nobody knows."),
        ("", "RayError"),
        ("x" * 301, "x" * 300),
    ],
)
def test_the_reason_of_a_death_is_one_line_of_ray_s(text: str, reason: str) -> None:
    assert liveness.reason(ray.exceptions.RayError(text)) == reason
