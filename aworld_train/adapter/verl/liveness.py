"""Processes whose death would leave VeRL's trainer waiting for ever, watched from the trainer's own process.

VeRL looks for results in a queue, again and again: a worker that the kernel killed puts nothing there, and clients of a
queue whose storage is gone try for minutes. A thread therefore holds a call to each of these processes, which Ray ends
with an error when the process dies; the trainer raises it where it waits for episodes. At the end of training VeRL ends
the queue itself, and then nothing is watched.
"""

import functools
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ray
import transfer_queue
from transfer_queue import interface as queue

from aworld_train import waits

_LOOK_SECONDS = 1.0
_MAX_REASON_CHARS = 300
_death: str | None = None
_is_over = False


def watch(calls: Mapping[str, Callable[[], Any]]) -> None:
    """Watch processes until this one ends, each by a function that calls it, again when a call ends."""
    _end_with_the_queue()
    threading.Thread(target=_watch_always, args=(dict(calls),), name="liveness", daemon=True).start()


def _end_with_the_queue() -> None:
    """Have the watch end when VeRL closes the queue, which kills the queue's processes."""
    close = transfer_queue.close

    @functools.wraps(close)
    def end_watch_and_close() -> None:
        global _is_over
        _is_over = True
        close()

    transfer_queue.close = end_watch_and_close


def check() -> None:
    """Raise RuntimeError with Ray's reason if a watched process has died."""
    if _death is not None:
        raise RuntimeError(_death)


def report_death(reason: str) -> None:
    """Have the trainer end with the reason, once it waits for episodes."""
    global _death
    _death = reason
    waits.report_loss(reason)


def is_over() -> bool:
    """Whether VeRL has ended training, and ends its processes."""
    return _is_over


def queue_calls() -> dict[str, Callable[[], Any]]:
    """Calls of the queue's actors, which this process has started; TransferQueue 0.1.11 has them in its interface."""
    storage = list((queue._TQ_STORAGE or {}).get("SimpleStorage", {}).values())
    actors = numbered("the queue's storage", storage) | {"the queue's controller": queue._TQ_CONTROLLER}
    return {name: actor.__ray_ready__.remote for name, actor in actors.items()}


def numbered(kind: str, processes: Sequence[Any]) -> dict[str, Any]:
    return {f"{kind} {i}" if len(processes) > 1 else kind: process for i, process in enumerate(processes)}


def _watch_always(calls: dict[str, Callable[[], Any]]) -> None:
    pending = {call(): name for name, call in calls.items()}
    while _death is None:
        ended, _ = ray.wait(list(pending), num_returns=len(pending), timeout=0)
        for reference in ended:
            name = pending.pop(reference)
            try:
                ray.get(reference)
            except ray.exceptions.RayError as error:
                if _is_over:
                    return
                report_death(f"{name} died: {reason(error)}")
                return
            pending[calls[name]()] = name
        time.sleep(_LOOK_SECONDS)


def reason(error: Exception) -> str:
    """Ray's error in one line: what it says about the process's end, without what it says about the call."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    reasons = [line for line in lines if re.search("killed|exit|memory", line, re.IGNORECASE)]
    return (reasons or lines or [type(error).__name__])[-1][:_MAX_REASON_CHARS]
