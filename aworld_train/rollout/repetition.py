"""Whether a model goes round in circles: the same turn again and again, or the same few tokens without end."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

_MIN_LOOP = 96  # tokens; a table or a list of zeros is no loop yet
_MAX_PERIOD = 48


@dataclass(frozen=True)
class RepetitionLimits:
    """How often something may come in a row before an episode is ended; 0 switches a test off.

    Attributes:
        turns: The same tool calls with the same arguments, or the same text.
        loops: The same tokens at the end of a turn.
    """

    turns: int = 0
    loops: int = 0


def repeats_turns(keys: Sequence[Any], limit: int) -> bool:
    """Whether the last ``limit`` turns mean the same."""
    return limit > 1 and len(keys) >= limit and len(set(keys[-limit:])) == 1


def ends_in_loop(tokens: Sequence[int], limit: int) -> bool:
    """Whether ``tokens`` ends with some period ``limit`` times or more, over a stretch that is no accident."""
    if limit < 2:
        return False
    for period in range(1, min(_MAX_PERIOD, len(tokens) // limit) + 1):
        stretch = max(period * limit, _MIN_LOOP)
        if len(tokens) >= stretch and all(
            tokens[-i] == tokens[-i - period] for i in range(1, stretch - period + 1)
        ):
            return True
    return False
