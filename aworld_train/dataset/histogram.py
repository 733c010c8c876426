"""The statistics of a dataset file as one picture: lengths of its texts, and counts of its kinds of rows."""

import io
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aworld_train.dataset.lengths import percentiles
from aworld_train.dataset.statistics import DatasetStatistics
from aworld_train.errors import DependencyMissing, UsageError

MAX_BARS = 8

_BINS = 40
_SKEWED = 30  # times the median: with longer texts nearly all others would be in one bar of a linear axis
_HISTOGRAM_INCHES, _TITLE_INCHES, _BAR_INCHES = 3.7, 0.6, 0.36
_BLUE, _GREY, _ORANGE = "#1f6feb", "#57606a", "#d98e04"


def draw_statistics(statistics: DatasetStatistics, path: Path) -> None:
    """Write a PNG: histograms of lengths above, bars of levels, scorers and kinds of answers below."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        raise DependencyMissing(
            "The picture is drawn by matplotlib, which is not installed: `pip install matplotlib`."
        ) from None
    bars = {
        title: counts
        for title, counts in (
            ("level", statistics.counts.get("level")),
            ("scorer", statistics.counts.get("scorer")),
            ("kind of answer", statistics.answer_kinds),
        )
        if counts
    }
    unit = "tokens" if "prompt tokens" in statistics.lengths else "characters"
    histograms = [name for name in (f"prompt {unit}", f"answer {unit}") if name in statistics.lengths]
    slots = min(MAX_BARS + 1, max(map(len, bars.values()), default=1))
    heights = (_HISTOGRAM_INCHES, _TITLE_INCHES + _BAR_INCHES * slots)
    figure = Figure(figsize=(10.5, sum(heights)), dpi=130, layout="constrained")
    halves: Any = figure.subfigures(2, 1, height_ratios=heights, hspace=0.06)
    upper, lower = halves
    for axes, measure in zip(_panels(upper, len(histograms)), histograms, strict=True):
        _histogram(axes, measure, statistics.lengths[measure])
    for axes, (title, counts) in zip(_panels(lower, len(bars)), bars.items(), strict=True):
        _bars(axes, title, counts, slots)
    figure.suptitle(
        f"{statistics.path.parent.name}/{statistics.path.name}: {_rows(statistics.rows)}".lstrip("/"),
        x=0.01,
        ha="left",
        parse_math=False,
        fontweight="bold",
    )
    picture = io.BytesIO()
    with warnings.catch_warnings():
        # Names in scripts that the font lacks are drawn as boxes; the printed tables show them.
        warnings.filterwarnings("ignore", "Glyph .* missing from font", UserWarning)
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
    skewed = high > _SKEWED * max(1, marks["p50"])
    if skewed:
        ratio = (high + 1) / max(1, low)
        edges = [max(1, low) * ratio ** (step / _BINS) for step in range(_BINS + 1)]
        axes.set_xscale("log")
    else:
        # Bins have whole widths, because otherwise some would hold one length more than others.
        width = max(1, -(-(high - low + 1) // _BINS))
        edges = [low - 0.5 + width * step for step in range((high - low) // width + 2)]
    # A logarithmic axis has no 0.
    lengths = [max(1, length) if skewed else length for length in counts]
    axes.hist(lengths, bins=edges, weights=list(counts.values()), color=_BLUE, alpha=0.85)
    axes.margins(y=0.2)
    for name, height in (("p50", 0.97), ("p90", 0.89), ("p99", 0.81)):
        axes.axvline(marks[name], color=_ORANGE, linewidth=1.2, linestyle="--")
        beyond = marks[name] > low + 0.75 * (high - low) and not skewed
        axes.annotate(
            f"{name} {marks[name]:,}",
            (marks[name], height),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            xytext=(-4 if beyond else 4, 0),
            ha="right" if beyond else "left",
            va="top",
            fontsize=8.5,
            color=_GREY,
            bbox={"boxstyle": "square,pad=0.15", "facecolor": "white", "edgecolor": "none", "alpha": 0.85},
        )
    kind, unit = measure.split()
    axes.set_title(f"Length of {kind}s", loc="left", fontsize=11)
    axes.set_xlabel(f"{unit} ({low:,} to {high:,})")
    axes.set_ylabel("rows")
    axes.grid(axis="y", alpha=0.25)
    axes.yaxis.get_major_locator().set_params(integer=True)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:,.0f}")
    _plain(axes)


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
    axes.bar_label(
        drawn,
        [f"{count:,}  {count / total:.0%}" for count in shown.values()],
        padding=4,
        fontsize=8.5,
        color=_GREY,
    )
    axes.set_ylim(slots - 0.5, -0.6)
    axes.margins(x=0.35)
    axes.set_title(f"Rows by {title}", loc="left", fontsize=11)
    axes.xaxis.set_visible(False)
    axes.spines[["bottom", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    _plain(axes)


def _plain(axes: Any) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_axisbelow(True)


def _rows(count: int) -> str:
    return f"{count:,} row" if count == 1 else f"{count:,} rows"
