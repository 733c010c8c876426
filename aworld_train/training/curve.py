"""Draws the learning curve of a run, and figures of several."""

import io
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from aworld_train.atomic import write_bytes
from aworld_train.errors import DependencyMissing, UsageError, suggestion
from aworld_train.training.recorded_run import RecordedRun

NAME = "learning_curve.png"


def draw_curve(run_dir: Path) -> Path | None:
    """Draw reward, accuracy and tool use into the run folder; None without matplotlib or without a step."""
    try:
        from matplotlib.figure import Figure
        from matplotlib.ticker import MaxNLocator
    except ModuleNotFoundError:
        return None
    rows = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    trained = [row for row in rows if "reward" in row]
    if not trained and not any("loss" in row for row in rows):
        return None
    figure = Figure(figsize=(7.5, 4.2), dpi=130, layout="constrained")
    axes = figure.add_subplot()
    axes.set_xlabel("training step")
    axes.set_title(run_dir.name, loc="left")
    axes.grid(alpha=0.25)
    if trained:
        _draw_episodes(axes, rows, trained)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    else:
        _draw_losses(axes, rows)
    path = run_dir / NAME
    figure.savefig(path)
    return path


def _draw_episodes(axes: Any, rows: Sequence[dict[str, Any]], trained: Sequence[dict[str, Any]]) -> None:
    measured = [row for row in rows if "val_accuracy" in row]
    steps = [row["step"] for row in trained]
    axes.plot(steps, [row["reward"] for row in trained], color="#9aa5b1", label="reward while training")
    axes.plot(
        steps,
        [row["tool_calls"] / row["episodes"] if row.get("episodes") else math.nan for row in trained],
        color="#d98e04",
        linestyle="--",
        label="tool calls per episode",
    )
    axes.plot(
        [row["step"] for row in measured],
        [row["val_accuracy"] for row in measured],
        color="#1f6feb",
        marker="o",
        linewidth=2.2,
        label=f"accuracy on {measured[0]['val_n'] if measured else 0} held-out tasks",
    )
    for row in measured:
        axes.annotate(
            f"{row['val_accuracy']:.0%}",
            (row["step"], row["val_accuracy"]),
            textcoords="offset points",
            xytext=(0, 8),
            ha="center",
            color="#1f6feb",
        )
    axes.set_ylim(0, max(1.1, *axes.get_ylim()))
    axes.margins(x=0.06)  # room for the first and the last label
    axes.legend(loc="lower right", frameon=False)


def _draw_losses(axes: Any, rows: Sequence[dict[str, Any]]) -> None:
    styles = {"loss": ("loss while training", "#9aa5b1", ""), "val_loss": ("held-out loss", "#1f6feb", "o")}
    for name, (label, color, marker) in styles.items():
        points = [(row["step"], row[name]) for row in rows if row.get(name) is not None]
        if points:
            axes.plot(*zip(*points, strict=True), color=color, marker=marker, label=label)
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)


def draw_runs(runs: Sequence[RecordedRun], figures: Sequence[str], out: Path) -> None:
    try:
        from matplotlib.figure import Figure
        from matplotlib.ticker import MaxNLocator
    except ModuleNotFoundError as error:
        raise DependencyMissing("Plots need matplotlib: pip install 'aworld-train[cpu]'.") from error
    for name in figures:
        known = sorted({each for run in runs for each in run.figure_names()})
        if name not in known:
            hint = suggestion(name, known)
            raise UsageError(
                f"No step of these runs has the figure {name!r}.{hint} `runs show RUN` lists them."
            )
    picture = Figure(figsize=(8, 2.6 * len(figures) + 0.6), dpi=130, layout="constrained")
    panels = picture.subplots(len(figures), 1, sharex=True, squeeze=False)[:, 0]
    for axes, name in zip(panels, figures, strict=True):
        for run in runs:
            points = run.series(name)
            marker = "o" if len(points) < 20 else None
            axes.plot(
                [step for step, _ in points], [value for _, value in points], marker=marker, label=run.name
            )
        axes.set_ylabel(name)
        axes.grid(alpha=0.25)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    panels[-1].set_xlabel("training step")
    panels[0].legend(frameon=False, fontsize="small")
    content = io.BytesIO()
    picture.savefig(content, format="png")
    write_bytes(out, content.getvalue(), 0o644)
