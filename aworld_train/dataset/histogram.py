"""The statistics of a dataset file as one picture: lengths of its texts, and counts of its kinds of rows."""

import io
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from aworld_train.dataset.lengths import percentiles
from aworld_train.dataset.statistics import DatasetStatistics
from aworld_train.errors import DependencyMissing, UsageError

MAX_BARS = 8

_BINS = 40
_SKEWED = 30  # times the median: with longer texts nearly all others would be in one bar of a linear axis
_HISTOGRAM_INCHES, _TITLE_INCHES, _BAR_INCHES = 3.7, 0.6, 0.36
_MARKED = ("p50", "p90", "p99")
_STYLE = {
    **{"axes.spines.top": False, "axes.spines.right": False, "axes.axisbelow": True},
    **{"axes.titlelocation": "left", "axes.titlesize": 11},
}
_BLUE, _GREY, _ORANGE = "#1f6feb", "#57606a", "#d98e04"


def draw_statistics(statistics: DatasetStatistics, path: Path) -> None:
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        raise DependencyMissing(
            "The picture is drawn by matplotlib, which is not installed: `pip install matplotlib`."
        ) from None
    counted = {
        "level": statistics.counts.get("level"),
        "scorer": statistics.counts.get("scorer"),
        "kind of answer": statistics.answer_kinds,
    }
    bars = {title: counts for title, counts in counted.items() if counts}
    unit = "tokens" if "prompt tokens" in statistics.lengths else "characters"
    histograms = [name for name in (f"prompt {unit}", f"answer {unit}") if name in statistics.lengths]
    slots = min(MAX_BARS + 1, max(map(len, bars.values()), default=1))
    heights = (_HISTOGRAM_INCHES, _TITLE_INCHES + _BAR_INCHES * slots)
    with rc_context(_STYLE), warnings.catch_warnings():
        # Names in scripts that the font lacks are drawn as boxes; the printed tables show them.
        warnings.filterwarnings("ignore", "Glyph .* missing from font", UserWarning)
        figure = Figure(figsize=(10.5, sum(heights)), dpi=130, layout="constrained")
        halves: Any = figure.subfigures(2, 1, height_ratios=heights, hspace=0.06)
        for axes, measure in zip(_panels(halves[0], len(histograms)), histograms, strict=True):
            _histogram(axes, measure, statistics.lengths[measure])
        for axes, (title, counts) in zip(_panels(halves[1], len(bars)), bars.items(), strict=True):
            _bars(axes, title, counts, slots)
        name = f"{statistics.path.parent.name}/{statistics.path.name}".lstrip("/")
        rows = f"{statistics.rows:,} row{'s' * (statistics.rows != 1)}"
        figure.suptitle(f"{name}: {rows}", x=0.01, ha="left", parse_math=False, fontweight="bold")
        picture = io.BytesIO()
        figure.savefig(picture, format="png")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(picture.getvalue())
    except OSError as error:
        raise UsageError(
            f"The picture cannot be written to {path}: {error.strerror}. Name another place with --out."
        ) from error


def _panels(figure: Any, count: int) -> list[Any]:
    return list(figure.subplots(1, count, squeeze=False)[0]) if count else []


def _histogram(axes: Any, measure: str, counts: Mapping[int, int]) -> None:
    marks = percentiles(counts)
    low, high = marks["min"], marks["max"]
    lengths = np.array(list(counts))
    if high > _SKEWED * max(1, marks["p50"]):
        # A logarithmic axis has no 0.
        lengths = np.maximum(lengths, 1)
        edges: Any = np.geomspace(max(1, low), high + 1, _BINS + 1)
        axes.set_xscale("log")
    else:
        # Bins have whole widths, because otherwise some would hold one length more than others.
        width = max(1, -(-(high - low + 1) // _BINS))
        edges = np.arange(low, high + width + 1, width) - 0.5
    axes.hist(lengths, bins=edges, weights=list(counts.values()), color=_BLUE, alpha=0.85)
    for name in _MARKED:
        axes.axvline(marks[name], color=_ORANGE, linewidth=1.2, linestyle="--")
    text, unit = measure.split()
    marked = ", ".join(f"{name} {marks[name]:,}" for name in _MARKED)
    axes.set_title(f"Length of {text}s: {marked}")
    axes.set_xlabel(f"{unit} ({low:,} to {high:,})")
    axes.set_ylabel("rows")
    axes.grid(axis="y", alpha=0.25)
    axes.yaxis.get_major_locator().set_params(integer=True)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:,.0f}")


def _bars(axes: Any, title: str, counts: Mapping[str, int], slots: int) -> None:
    shown = dict(sorted(counts.items(), key=lambda item: -item[1])[:MAX_BARS])
    if title == "level":
        shown = dict(sorted(shown.items()))
    if len(counts) > len(shown):
        shown[f"{len(counts) - len(shown)} others"] = sum(counts.values()) - sum(shown.values())
    total = sum(counts.values())
    # The names of user-defined scorers differ at their ends.
    names = [name if len(name) <= 24 else f"…{name[-23:]}" for name in shown]
    drawn = axes.barh(range(len(shown)), list(shown.values()), color=_BLUE, alpha=0.85, height=0.65)
    axes.set_yticks(range(len(shown)), names, parse_math=False)
    shares = [f"{count:,}  {count / total:.0%}" for count in shown.values()]
    axes.bar_label(drawn, shares, padding=4, fontsize=8.5, color=_GREY)
    axes.set_ylim(slots - 0.5, -0.6)
    axes.margins(x=0.35)
    axes.set_title(f"Rows by {title}")
    axes.xaxis.set_visible(False)
    axes.spines[["bottom", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
