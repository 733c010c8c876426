"""A series of figures as one line of text."""

import itertools
import math
from collections.abc import Sequence

_BARS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], width: int = 24) -> str:
    """The values, or means of parts of them, as at most ``width`` bars; a dot where one is not finite."""
    values = means(values, width)
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return "·" * len(values)
    low, high = min(finite), max(finite)
    if low == high:
        return "".join("▄" if math.isfinite(value) else "·" for value in values)
    last = len(_BARS) - 1
    return "".join(
        _BARS[round((value - low) / (high - low) * last)] if math.isfinite(value) else "·" for value in values
    )


def means(values: Sequence[float], parts: int) -> Sequence[float]:
    """The values, or the means of that many parts if there are more."""
    if len(values) <= parts:
        return values
    bounds = [round(i * len(values) / parts) for i in range(parts + 1)]
    return [_mean(values[begin:end]) for begin, end in itertools.pairwise(bounds)]


def _mean(values: Sequence[float]) -> float:
    mean = sum(values) / len(values)
    if math.isfinite(mean):
        return mean
    finite = [value for value in values if math.isfinite(value)]
    return sum(finite) / len(finite) if finite else math.nan
