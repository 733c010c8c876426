"""The curves of a run over its steps: the figures of its metrics, and those that its episodes add."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from aworld_train.evaluation.statistics import wilson_interval
from aworld_train.store.reading import Store
from aworld_train.store.step_figures import RunFigures
from aworld_train.training.recorded_run import RecordedRun

FIGURES = (
    *("reward", "loss", "kl", "teacher_kl", "entropy", "grad_norm", "staleness", "max_staleness"),
    *("response_tokens", "turns", "seconds", "tokens_per_second"),
)
"""The figures of ``metrics.jsonl`` that a run's page shows at first."""
_UPDATE_FIGURES = (
    *("rows", "padding_rows", "updates", "clipped_updates"),
    *("groups", "equal_groups", "rejected_episodes"),
    *("stale_episodes", "stale_tokens", "lost_samplers"),
)
"""Those of a run's own page that say what its updates were made of."""
_EPISODE_FIGURES = ("reward", "turns", "response_tokens", "staleness")
MAX_POINTS = 2_000
"""The most points of a curve that are sent; of more, every n-th."""


def run_curves(run: RecordedRun, store: Store | None) -> dict[str, Any]:
    """All that a run's page draws; ``names`` are all figures that ``metrics.jsonl`` has."""
    figures = store.figures() if store else RunFigures(())
    by_step = figures.step_figures()
    series = {name: points for name in (*FIGURES, *_UPDATE_FIGURES) if (points := run.series(name))}
    for name in _EPISODE_FIGURES:
        if name not in series:
            trained = (row for row in by_step if row["phase"] == "train" and row[name] is not None)
            if points := [(row["step"], float(row[name])) for row in trained]:
                series[name] = points
    return {
        "series": {name: thinned(points) for name, points in series.items()},
        "validation": _validation(run, by_step),
        "outcomes": _outcomes(run, figures),
        "tools": _tools(figures),
        "names": run.figure_names(),
    }


def thinned(points: Sequence[Any]) -> list[Any]:
    step = math.ceil(len(points) / MAX_POINTS)
    return list(points) if step <= 1 else [*points[:-1:step], points[-1]]


def interval(accuracy: Any, n: Any) -> tuple[float, float] | None:
    if not isinstance(accuracy, int | float) or not isinstance(n, int) or n <= 0 or not 0 <= accuracy <= 1:
        return None
    return wilson_interval(accuracy * n, n)


def _validation(run: RecordedRun, by_step: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    counts = dict(run.series("val_n"))
    points = [
        (step, accuracy, int(counts[step]) if math.isfinite(counts.get(step, math.nan)) else None)
        for step, accuracy in run.series("val_accuracy")
    ]
    if not points:
        points = [
            (row["step"], float(row["accuracy"]), int(row["measured"]))
            for row in by_step
            if row["phase"] == "val" and row["accuracy"] is not None
        ]
    validations = []
    for step, accuracy, n in points:
        low, high = interval(accuracy, n) or (None, None)
        validations.append({"step": step, "accuracy": accuracy, "n": n, "low": low, "high": high})
    return thinned(validations)


def _outcomes(run: RecordedRun, figures: RunFigures) -> dict[str, list[tuple[int, int]]]:
    counts: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for row in run.rows:
        outcomes = row.get("outcomes")
        for outcome, count in outcomes.items() if isinstance(outcomes, dict) else ():
            if isinstance(count, int):
                counts[str(outcome)].append((row["step"], count))
    if not counts:
        stored = figures.outcomes()
        phases = {phase for phase, _, _, _ in stored}
        for phase, step, outcome, count in stored:
            if phase == "train" or "train" not in phases:
                counts[outcome].append((step, count))
    return {outcome: thinned(points) for outcome, points in sorted(counts.items())}


def _tools(figures: RunFigures) -> dict[str, list[dict[str, Any]]]:
    points_by_tool: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in figures.tool_latencies():
        steps = points_by_tool[row["tool"]]
        if steps and steps[-1]["step"] == row["step"]:
            # A step's training and validation are one point: the curve is of the tool, not of the model.
            last, calls = steps[-1], steps[-1]["calls"] + row["calls"]
            mean = (last["mean_seconds"] * last["calls"] + row["mean_seconds"] * row["calls"]) / calls
            longest = max(last["max_seconds"], row["max_seconds"])
            steps[-1] = {
                "step": row["step"],
                "calls": calls,
                "errors": last["errors"] + row["errors"],
                "mean_seconds": mean,
                "max_seconds": longest,
            }
        else:
            steps.append({name: value for name, value in row.items() if name not in ("phase", "tool")})
    return {tool: thinned(points) for tool, points in points_by_tool.items()}
