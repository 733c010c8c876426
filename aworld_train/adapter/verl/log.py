"""Finds the errors in VeRL's log."""

import re

from aworld_train.errors import NO_SPACE

_ERROR_LINE = re.compile(r"^(?:\w+\.)*\w*(?:Error|Exception|Died)\b.*")
_DECORATION = re.compile(r"\x1b\[[0-9;]*m|^\([^)]*pid=[^)]*\)\s?", re.MULTILINE)
_MAX_CHARS = 500
# Ray's names for the loss of a process, a machine, or what they held (ray/exceptions.py), vLLM's for its engine's, and
# the package's own (`liveness`). An actor whose own start failed has the same name, and fails again.
_LOST = re.compile(
    r"\b(?:ActorDied|ActorUnavailable|RayActor|WorkerCrashed|NodeDied|LocalRayletDied|OwnerDied|ObjectLost|"
    r"ObjectFetchTimedOut|EngineDead)(?:Error)?\b|\bthe (?:episode worker|queue's \w+)(?: \d+)? died\b"
)
_OWN_FAULT = "creation task"
# Ray gives its node manager 30 s, a constant in ray/_private/node.py, which a busy machine can exceed.
_START_TIMEOUT = "The current node timed out during startup"


def errors_in(log: str) -> list[str]:
    """Lines that name an error, in order, without colours and Ray's prefixes."""
    lines = [_DECORATION.sub("", line).strip() for line in log.splitlines()]
    return [line[:_MAX_CHARS] for line in lines if _ERROR_LINE.match(line) or NO_SPACE in line]


def start_failed(log: str) -> bool:
    """Whether the last error is that Ray's processes took too long to start."""
    errors = errors_in(log)
    return bool(errors) and _START_TIMEOUT in errors[-1]


def is_transient(error: str) -> bool:
    """Whether an error is the loss of a process or a machine."""
    return _LOST.search(error) is not None and _OWN_FAULT not in error


def error_line(error: BaseException) -> str:
    """An error's type and its cause in one line.

    Ray's errors have up to 15 lines: a remote traceback, whose last error is the cause, or a first sentence with
    facts about the actor below it.
    """
    text = str(error)
    if causes := errors_in(text):
        return causes[-1]
    lines = text.strip().splitlines()
    return f"{type(error).__name__}: {lines[0].strip()[:_MAX_CHARS]}" if lines else type(error).__name__
