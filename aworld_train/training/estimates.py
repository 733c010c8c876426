"""How much disk and how long a run will take, by estimate, and the refusal of a run that its disk plainly cannot hold.

Time is known by the newest completed run of the same recipe; without one nothing is said.
"""

import math
import shutil
import statistics
import struct
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aworld_train.errors import UsageError
from aworld_train.model.files import local_folder
from aworld_train.model.weights import parameters_of
from aworld_train.recipe import LoadedRecipe, changes
from aworld_train.recipe.schema import Recipe
from aworld_train.training.progress import clock
from aworld_train.training.recorded_run import RecordedRun, find_runs
from aworld_train.training.run_folder import FREE

_GB = 10**9
_TRAINED_BYTES, _LORA_BYTES = 16, 8
"""Of a parameter in a checkpoint, in fp32: weight, AdamW's two moments, and the weight again for other libraries."""
_EPISODE_BYTES, _TOKEN_BYTES = 5_000, 12
"""Of an episode in traces and store: 4.4 to 4.9 kB with 65 to 94 tokens; a token has its id, log-probability, text."""


@dataclass(frozen=True)
class DiskNeed:
    """What a run writes, in bytes: one checkpoint (0 if the model's size is unknown), how many, and all episodes."""

    checkpoint: int
    checkpoints: int
    episodes: int

    @property
    def total(self) -> int:
        return self.checkpoint * self.checkpoints + self.episodes

    @property
    def sentence(self) -> str:
        """Empty for less than a gigabyte, and where the size of the model is not known."""
        if not self.checkpoint or self.total < _GB:
            return ""
        return (
            f"The run takes up to {self.total / _GB:.1f} GB of disk, by estimate: {self.checkpoints} checkpoints of "
            f"{self.checkpoint / _GB:.1f} GB, and {self.episodes / _GB:.1f} GB of episodes."
        )


def parameters_here(model: str | None) -> int:
    """How many parameters a model has by its files; 0 where they are not on this machine or cannot be read."""
    folder = local_folder(model)
    try:
        return parameters_of(folder) if folder else 0
    except (OSError, ValueError, KeyError, TypeError, AttributeError, struct.error):
        return 0


def disk_need(recipe: Recipe, parameters: int) -> DiskNeed:
    trainer, rollout = recipe.trainer, recipe.rollout
    saves = math.ceil(trainer.steps / max(1, trainer.save_every))
    # A new checkpoint is written before the oldest one is removed, and the best one stays beside them.
    kept = min(saves, trainer.keep_checkpoints + 2)
    episodes = trainer.steps * trainer.batch_size * rollout.n
    each = _LORA_BYTES if recipe.model.lora.rank else _TRAINED_BYTES
    size = _EPISODE_BYTES + _TOKEN_BYTES * recipe.max_episode_tokens
    return DiskNeed(each * parameters, kept, episodes * size)


def check_disk(need: DiskNeed, folder: Path, keep: int) -> None:
    """Check that a run's checkpoints fit on its disk; what an earlier attempt wrote counts as free."""
    required = need.checkpoint * min(need.checkpoints, keep + 1)
    written = sum(file.stat().st_size for file in (folder / "checkpoints").rglob("*") if file.is_file())
    existing = next(path for path in (folder, *folder.resolve().parents) if path.exists())
    free = shutil.disk_usage(existing).free
    if required > free + written:
        raise UsageError(
            f"{free / _GB:.1f} GB are free for {folder}, and its checkpoints take {required / _GB:.1f} GB. Free some, "
            "take another folder (--runs), or keep fewer checkpoints (trainer.keep_checkpoints)."
        )


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
        validations = -(-trainer.steps // trainer.val_every)
        seconds = _start_seconds(run) + trainer.steps * step + validations * val
        where = f"on {host}, " if (host := _attempts(run)[-1].get("host")) else ""
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
    return max(0.0, float(run.summary.get("seconds", 0.0)) - counted) / len(_attempts(run))


def _attempts(run: RecordedRun) -> list[dict[str, Any]]:
    return run.manifest.get("attempts") or [{}]
