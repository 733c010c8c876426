"""Turns the parameters of an address into a filter of episodes."""

from collections.abc import Mapping
from dataclasses import dataclass

from aworld_train.errors import UsageError
from aworld_train.store.conditions import where
from aworld_train.store.reading import SORTS

PAGE_SIZE = 100
_MAX_PAGE = 500
_MAX_OFFSET = 10**9
_EQUAL = ("phase", "outcome", "treatment", "status", "scorer", "tool", "suspicion", "task", "source")
_BOUNDS = {
    "step": "step=",
    "step_min": "step>=",
    "step_max": "step<=",
    "reward_min": "reward>=",
    "reward_max": "reward<=",
}


@dataclass(frozen=True)
class EpisodeFilter:
    """Which episodes are listed; ``superseded``: also those that a resumed run has played again."""

    condition: str = ""
    search: str = ""
    superseded: bool = False
    sort: str = "began"
    descending: bool = True
    offset: int = 0
    limit: int = PAGE_SIZE


def parse_filter(parameters: Mapping[str, str]) -> EpisodeFilter:
    tests = [f"{name}={quoted(value)}" for name in _EQUAL if (value := parameters.get(name))]
    tests += [
        f"{bound}{_number(name, value)}" for name, bound in _BOUNDS.items() if (value := parameters.get(name))
    ]
    if (condition := parameters.get("where", "")).strip():
        # Read alone first, so that a mistake is reported as it was typed and a parenthesis cannot end the others.
        where(condition)
        tests.append(f"({condition})")
    sort = parameters.get("sort") or "began"
    if sort not in SORTS:
        raise UsageError(f"Episodes cannot be sorted by {sort!r}; by {', '.join(SORTS)}.")
    return EpisodeFilter(
        " and ".join(tests),
        parameters.get("search", ""),
        parameters.get("superseded") == "1",
        sort,
        parameters.get("order", "down") != "up",
        _count("offset", parameters.get("offset"), 0, _MAX_OFFSET),
        _count("limit", parameters.get("limit"), PAGE_SIZE, _MAX_PAGE),
    )


def quoted(value: str) -> str:
    """A value as a condition has it."""
    for mark in ('"', "'"):
        if mark not in value:
            return f"{mark}{value}{mark}"
    raise UsageError(f"A condition cannot compare with {value!r}, which has both kinds of quotation marks.")


def _number(name: str, value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        raise UsageError(f"`{name}` is {value!r}, which is not a number.") from None
    if number != number or abs(number) == float("inf"):
        raise UsageError(f"`{name}` is {value!r}, which is not a finite number.")
    return number


def _count(name: str, value: str | None, default: int, max_count: int) -> int:
    if not value:
        return default
    if not (value.isascii() and value.isdigit()) or len(value) > 12 or int(value) > max_count:
        raise UsageError(f"`{name}` is {value!r}; it must be a whole number from 0 to {max_count}.")
    return int(value)
