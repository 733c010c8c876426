"""What the columns of a table hold: counts, extremes and averages, and histograms of the numbers."""

import math
import os
import statistics
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from gaia_tools.tables import cell

_MAX_DRAWN = 9
_COMMON = 3


def summaries(rows: list[list[Any]]) -> list[dict[str, Any]]:
    """Of each column below the first row, which names them: how many values, how many different, and what they are.

    Mean, median, sum and standard deviation (of a sample) are of those values that are numbers.
    """
    found = []
    for name, values in _columns(rows):
        filled = [value for value in values if value not in (None, "")]
        numbers = _numbers(filled)
        counted = Counter(map(cell, filled))
        summary: dict[str, Any] = {
            "column": name,
            "values": len(filled),
            "empty": len(values) - len(filled),
            "different": len(counted),
            "numbers": len(numbers),
        }
        if numbers:
            summary |= {
                "min": min(numbers),
                "max": max(numbers),
                "sum": math.fsum(numbers),
                "mean": statistics.fmean(numbers),
                "median": statistics.median(numbers),
                "standard_deviation": statistics.stdev(numbers) if len(numbers) > 1 else None,
            }
        if len(counted) < len(filled) and len(numbers) < len(filled):
            summary["most_common"] = ", ".join(
                f"{value[:50]} ({n})" for value, n in counted.most_common(_COMMON)
            )
        found.append(summary)
    return found


def draw(rows: list[list[Any]], target: Path) -> bool:
    numeric = [(name, numbers) for name, values in _columns(rows) if len(numbers := _numbers(values)) > 1]
    if not numeric:
        return False
    # One place for its list of fonts, which takes seconds to make; and no threads beside this one.
    os.environ.setdefault("MPLCONFIGDIR", str(Path(tempfile.gettempdir(), f"matplotlib-{os.getuid()}")))
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from matplotlib.figure import Figure

    numeric = numeric[:_MAX_DRAWN]
    across = min(3, len(numeric))
    down = -(-len(numeric) // across)
    figure = Figure(figsize=(4.5 * across, 3.2 * down), layout="constrained")
    for number, (name, numbers) in enumerate(numeric, 1):
        axes = figure.add_subplot(down, across, number)
        axes.hist(numbers, bins=min(30, max(5, len(set(numbers)))))
        axes.set_title(name[:40].replace("$", r"\$"))
    figure.savefig(target, format="png", dpi=100)
    return True


def _columns(rows: list[list[Any]]) -> list[tuple[str, list[Any]]]:
    head, body = (rows[0], rows[1:]) if rows else ([], [])
    width = max(map(len, rows), default=0)
    names = [cell(head[i]) if i < len(head) else "" for i in range(width)]
    return [
        (name or f"column {i + 1}", [row[i] if i < len(row) else None for row in body if row])
        for i, name in enumerate(names)
    ]


def _numbers(values: list[Any]) -> list[float]:
    found = []
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            continue
        try:
            number = float(value)
        except (ValueError, OverflowError):
            continue
        if math.isfinite(number):
            found.append(number)
    return found
