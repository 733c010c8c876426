"""Processes whose death would leave VeRL's trainer waiting for ever, watched from the trainer's own process.

VeRL hands a batch to its agent-loop workers and does not wait for their calls: it looks for results in a queue, again
and again. A worker that the kernel killed for its memory puts nothing there. Each watched process therefore has a call
that never returns; Ray ends the call with an error when the process dies.
"""

import time
from collections.abc import Sequence
from typing import Any

import ray

_CHECK_SECONDS = 1.0
_watched: dict[Any, str] = {}
_next_check = 0.0


def watch(calls: Sequence[Any], kind: str) -> None:
    """Watch processes by their calls that never return."""
    for number, call in enumerate(calls):
        _watched[call] = f"{kind} {number}" if len(calls) > 1 else kind


def check() -> None:
    """Look for watched processes that have died; at most once a second.

    Raises:
        RuntimeError: One has died; the message has Ray's reason.
    """
    global _next_check
    now = time.monotonic()
    if now < _next_check or not _watched:
        return
    _next_check = now + _CHECK_SECONDS
    ended, _ = ray.wait(list(_watched), num_returns=1, timeout=0)
    for call in ended:
        name = _watched.pop(call)
        try:
            ray.get(call)
        except ray.exceptions.RayError as error:
            raise RuntimeError(f"{name} died: {_reason(error)}") from error
        raise RuntimeError(f"{name} ended")


def _reason(error: Exception) -> str:
    """Ray's error in one line: what it says about the process's end, without what it says about the call."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    reasons = [
        line
        for line in lines
        if "killed" in line.lower() or "exit" in line.lower() or "memory" in line.lower()
    ]
    return (reasons or lines or [type(error).__name__])[-1][:300]
