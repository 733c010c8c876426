"""``model.path: runs/NAME``: the model of a run's last whole checkpoint, so that a run begins where another ended.

A run that was started from it keeps the step in its manifest, and is resumed from the same one.
"""

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from aworld_train.adapter.base import find
from aworld_train.errors import ModelError
from aworld_train.json_lines import read_json
from aworld_train.recipe.schema import Recipe
from aworld_train.training.checkpoint_export import choose
from aworld_train.training.recorded_run import RecordedRun, open_run
from aworld_train.training.run_files import MANIFEST, RECIPE, has_run

RUNS = Path("runs")
MODEL_FROM = "model_from"
"""The entry of a manifest that names the run and the step."""


@dataclass(frozen=True)
class RunModel:
    run: str
    step: int
    folder: Path

    def to_json(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if name != "folder"}


def run_model(recipe: Recipe, runs: Path = RUNS, run_dir: Path | None = None) -> RunModel | None:
    """What a recipe's ``model.path`` means if it names a run below ``runs``, or is the folder of one; else None.

    ``run_dir`` is the folder of the run that starts from it.
    """
    run = _named_run(recipe.model.path, runs)
    if run is None:
        return None
    recorded: dict[str, Any] = {}
    if run_dir is not None and run_dir.is_dir() and has_run(run_dir):
        recorded = read_json(run_dir / MANIFEST).get(MODEL_FROM) or {}
    checkpoint = choose(run, str(recorded["step"]) if recorded.get("run") == run.name else "last")
    folder = None if checkpoint.fault else find(run.framework).model_in(checkpoint.path)
    if folder is None:
        raise ModelError(
            f"The checkpoint of step {checkpoint.step} of the run {run.name} cannot be loaded: "
            f"{checkpoint.fault or 'it has no model in Hugging Face format'}. `aworld-train runs checkpoint "
            f"{run.name}` exports one; name its folder as model.path."
        )
    return RunModel(run.name, checkpoint.step, folder)


def with_run_model(recipe: Recipe, runs: Path = RUNS) -> Recipe:
    return with_model(recipe, run_model(recipe, runs))


def with_model(recipe: Recipe, model: RunModel | None) -> Recipe:
    if model is None:
        return recipe
    return replace(recipe, model=replace(recipe.model, path=str(model.folder), hub=None))


def _named_run(path: str | None, runs: Path) -> RecordedRun | None:
    if path is None:
        return None
    folder = Path(path).expanduser()
    if folder.parent == RUNS and not (folder / "config.json").is_file():
        return open_run(folder.name, runs)
    return open_run(path, runs) if (folder / RECIPE).is_file() else None
