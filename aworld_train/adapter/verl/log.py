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
    r"ObjectFetchTimedOut|EngineDead)(?:Error)?\b|Failed to connect to GCS|"
    r"\bthe (?:episode worker|engine|sampler|queue's \w+)(?: \d+)? died\b"
)
_HEAD_LOST = re.compile(r"Failed to connect to GCS within \d+ seconds")  # Ray's head has died
_ACTOR = re.compile(r"class_name: (\w+)")  # Ray writes it below the error of an actor
_OWN_FAULT = "creation task"
# Ray gives its node manager 30 s, a constant in ray/_private/node.py, which a busy machine can exceed.
_START_TIMEOUT = "The current node timed out during startup"


def errors_in(log: str) -> list[str]:
    errors: list[str] = []
    last_is_error = False
    for line in log.splitlines():
        text = _DECORATION.sub("", line).strip()
        if lost := _HEAD_LOST.search(text):
            errors.append(lost.group())
        elif _ERROR_LINE.match(text) or NO_SPACE in text:
            errors.append(text[:_MAX_CHARS])
        elif last_is_error and (actor := _ACTOR.match(text)):
            errors[-1] = f"{errors[-1].rstrip('.')} ({actor.group(1)})."
        last_is_error = bool(errors) and text.startswith(errors[-1])
    return errors


def start_failed(log: str) -> bool:
    errors = errors_in(log)
    return bool(errors) and _START_TIMEOUT in errors[-1]


def is_transient(error: str) -> bool:
    return _LOST.search(error) is not None and _OWN_FAULT not in error


def error_line(error: BaseException) -> str:
    text = str(error)
    if causes := errors_in(text):
        return causes[-1]
    lines = text.strip().splitlines()
    if not lines:
        return type(error).__name__
    first = f"{type(error).__name__}: {lines[0].strip()}"[:_MAX_CHARS]
    # What Ray says about an actor is in the lines below the first.
    return next(iter(errors_in("\n".join((first, *lines[1:])))), first)
