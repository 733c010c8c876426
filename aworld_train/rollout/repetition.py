"""Detects a model that repeats itself: the same turn again and again, or the same few tokens without end."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

_MIN_LOOP = 96  # tokens; a table or a list of zeros is not a loop yet
_MAX_PERIOD = 48


@dataclass(frozen=True)
class RepetitionLimits:
    """How many repetitions in a row end an episode: of whole turns, or of tokens at a turn's end; 0 is never."""

    turns: int = 0
    loops: int = 0


def repeats_turns(keys: Sequence[Any], limit: int) -> bool:
    return limit > 1 and len(keys) >= limit and len(set(keys[-limit:])) == 1


def ends_in_loop(tokens: Sequence[int], limit: int) -> bool:
    """Whether ``tokens`` ends with ``limit`` or more repetitions of a period, over at least the minimal length."""
    if limit < 2:
        return False
    for period in range(1, min(_MAX_PERIOD, len(tokens) // limit) + 1):
        stretch = max(period * limit, _MIN_LOOP)
        if len(tokens) >= stretch and all(
            tokens[-i] == tokens[-i - period] for i in range(1, stretch - period + 1)
        ):
            return True
    return False
