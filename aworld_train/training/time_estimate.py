"""How long a run will take, by the newest completed run of the same recipe; without one nothing is said."""

import statistics
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from aworld_train.errors import UsageError
from aworld_train.recipe import LoadedRecipe, changes
from aworld_train.training.progress import clock
from aworld_train.training.recorded_run import RecordedRun, find_runs
from aworld_train.training.run_folder import FREE

_ANY = (
    *("name.", "trainer.lr.", "trainer.project.", "trainer.seed."),
    *(key for key in FREE if not key.startswith("cluster.")),
)
"""Keys with which a step takes as long as with others."""


@dataclass(frozen=True)
class TimeEstimate:
    seconds: float
    sentence: str


def time_estimate(loaded: LoadedRecipe, runs: Path) -> TimeEstimate | None:
    trainer = loaded.recipe.trainer
    for run in find_runs(runs):
        if run.status != "completed" or run.evaluation or not _is_alike(run, loaded):
            continue
        if (step := _median(run, "seconds")) is None:
            continue
        val = _median(run, "val_seconds") or 0.0
        validations = -(-trainer.steps // trainer.val_interval) if trainer.val_interval else 0
        seconds = _start_seconds(run) + trainer.steps * step + validations * val
        host = run.attempts[-1].get("host") if run.attempts else None
        where = f"on {host}, " if host else ""
        return TimeEstimate(
            seconds,
            f"About {clock(seconds)}, as {run.name} went ({where}{run.started[:10]}): {step:.1f} s a step, "
            f"{val:.1f} s a validation.",
        )
    return None


def _is_alike(run: RecordedRun, loaded: LoadedRecipe) -> bool:
    with suppress(UsageError):  # a recipe that cannot be read keeps no other run from its start
        return all(f"{key}.".startswith(_ANY) for key in changes(run.recipe, loaded.unresolved))
    return False


def _median(run: RecordedRun, figure: str) -> float | None:
    values = [value for _, value in run.series(figure)]
    return statistics.median(values) if values else None


def _start_seconds(run: RecordedRun) -> float:
    """What a start took, with the validation before the first step, of which no record has the time."""
    counted = sum(value for figure in ("seconds", "val_seconds") for _, value in run.series(figure))
    return max(0.0, float(run.summary.get("seconds", 0.0)) - counted) / max(1, len(run.attempts))
