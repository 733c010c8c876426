"""A request to a running run for another number of samplers, which the framework reads as it trains."""

from pathlib import Path

from aworld_train.adapter.base import MAX_SAMPLERS, SAMPLERS_REQUEST
from aworld_train.atomic import write_text
from aworld_train.errors import UsageError
from aworld_train.recipe.schema import Mode, TrainerSection
from aworld_train.training.recorded_run import open_run
from aworld_train.training.run_files import is_in_use


def ask_for_samplers(name: str, number: int, runs: Path) -> Path:
    """Write the request; returns the folder of the run."""
    if not 1 <= number <= MAX_SAMPLERS:
        raise UsageError(f"A run can have 1 to {MAX_SAMPLERS} samplers, not {number}.")
    run = open_run(name, runs)
    mode = (run.recipe.get("trainer") or {}).get("mode") or TrainerSection.mode.value
    if mode != Mode.separate_async.value:
        raise UsageError(
            f"The run {run.name} has trainer.mode: {mode}, whose training processes sample. Only with "
            "separate_async are there samplers beside them."
        )
    if not is_in_use(run.path):
        raise UsageError(
            f"The run {run.name} is not running. Continue it with `train --resume`; rollout.samplers says how many "
            "samplers it begins with."
        )
    write_text(run.path / SAMPLERS_REQUEST, f"{number}\n")
    return run.path
