"""One thing that a probe has seen, with what to do about it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum

from aworld_train.doctor.machine import Machine
from aworld_train.doctor.needs import Needs


class FindingStatus(Enum):
    ok = "ok"
    warn = "warn"
    fail = "fail"

    @property
    def rank(self) -> int:
        return list(FindingStatus).index(self)


@dataclass(frozen=True)
class Finding:
    """What was seen in an area, in a sentence that never holds a secret, and what to do about it.

    ``fail``: a run cannot go well; ``warn``: it may not, or it could not be looked at.
    """

    status: FindingStatus
    what: str
    remedy: str = ""
    area: str = ""


Probe = Callable[[Machine, Needs], Iterator[Finding]]


def ok(what: str) -> Finding:
    return Finding(FindingStatus.ok, what)


def warn(what: str, remedy: str) -> Finding:
    return Finding(FindingStatus.warn, what, remedy)


def fail(what: str, remedy: str) -> Finding:
    return Finding(FindingStatus.fail, what, remedy)


def fault(needed: bool, what: str, remedy: str) -> Finding:
    """``fail`` where it is needed, ``warn`` where it is not."""
    return Finding(FindingStatus.fail if needed else FindingStatus.warn, what, remedy)


def listed(names: list[str], most: int = 4) -> str:
    shown = ", ".join(names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown
