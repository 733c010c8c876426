"""The folder of an evaluation: a run folder that one process works on, resumed only for what it was made with."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from aworld_train.adapter.base import find
from aworld_train.atomic import write_text
from aworld_train.errors import UsageError
from aworld_train.evaluation.plan import EvalPlan
from aworld_train.json_lines import read_json
from aworld_train.recipe import dump
from aworld_train.training.recorded_run import check_runs_folder, find_runs
from aworld_train.training.run_files import (
    MANIFEST,
    RECIPE,
    SETTINGS,
    SUMMARY,
    in_use_error,
    is_in_use,
    lock_folder,
    write_object,
)
from aworld_train.training.run_folder import file_hashes, refuse_changes, start_facts, write_manifest
from aworld_train.training.summary import read_seconds

PREFIX = "eval-"
_FREE = (
    "name.",
    "extends.",
    "eval.concurrency.",
    "eval.request_timeout.",
    "eval.max_seconds.",
    "eval.max_tokens.",
    "eval.max_cost.",
    "eval.max_errors.",
    "eval.prices.",
    "env.workers.",
    "env.url.",
    "env.token.",
    "trainer.",
    "algorithm.",
    "cluster.",
    "store.keep.",
    "store.redact.",
    "store.max_gb.",
    "store.otlp.",
)
"""Keys that say how fast and how long it is measured, or that only training uses, and change nothing of a result."""
_FREE_SETTINGS = ("model_url", "concurrency", "prices")


@dataclass(frozen=True)
class EvalFolder:
    """A folder that this process has locked; ``seconds`` is how long earlier processes have worked on it."""

    path: Path
    is_resumed: bool
    seconds: float
    _lock: TextIO

    def write_summary(self, content: Mapping[str, Any]) -> None:
        write_text(self.path / SUMMARY, json.dumps(content, indent=2, ensure_ascii=False) + "\n")

    def close(self) -> None:
        self._lock.close()


def new_folder(runs: Path, name: str, *, is_chosen: bool) -> Path:
    """The folder for a new evaluation; a number is added to a name that is taken, unless the user has chosen it."""
    path = runs / f"{PREFIX}{name}"
    number = 1
    while path.exists() and any(path.iterdir()):
        if is_chosen and is_in_use(path):
            raise in_use_error(path, "choose another --name")
        if is_chosen:
            raise UsageError(
                f"The folder {path} is not empty. Choose another --name, remove the folder, or continue with that "
                "evaluation with --resume."
            )
        number += 1
        path = runs / f"{PREFIX}{name}-{number}"
    return path


def folder_to_resume(runs: Path, name: str, *, is_chosen: bool) -> Path:
    """The folder of an evaluation to continue: of that name, or the newest whose recipe has it."""
    if is_chosen:
        for path in (runs / f"{PREFIX}{name}", runs / name, Path(name)):
            if (path / RECIPE).is_file():
                return path
        raise UsageError(f"No evaluation to resume in {runs / f'{PREFIX}{name}'}.")
    check_runs_folder(runs)
    own = [run for run in find_runs(runs) if run.recipe.get("name") == name and SETTINGS in run.manifest]
    if not own:
        raise UsageError(f"No evaluation of {name} to resume in {runs}. --runs names the folder of runs.")
    return max(own, key=lambda run: (run.started, run.path.stat().st_mtime)).path


def open_folder(path: Path, plan: EvalPlan, *, resume: bool) -> EvalFolder:
    path = path.resolve()
    for part in ("logs", "traces"):
        (path / part).mkdir(parents=True, exist_ok=True)
    lock = lock_folder(path)
    try:
        recipe = plan.loaded.recipe
        hashes = file_hashes([Path(file) for file in recipe.dataset.val_files])
        if resume:
            refuse_changes(path, plan.loaded.unresolved, hashes, _FREE)
            _refuse_other_settings(path, plan)
        else:
            write_text(path / RECIPE, dump(dict(plan.loaded.unresolved)))
        write_manifest(
            path,
            packages=() if plan.endpoint else find(recipe.trainer.framework).packages,
            hashes=hashes,
            environment={},
            model=plan.model,
            seed=recipe.eval.seed,
            more={SETTINGS: plan.to_json()},
        )
        manifest = read_json(path / MANIFEST)
        manifest["attempts"].append(start_facts(0))
        write_object(path / MANIFEST, manifest | {SETTINGS: plan.to_json()})
        return EvalFolder(path, resume, read_seconds(path) if resume else 0.0, lock)
    except BaseException:
        lock.close()
        raise


def _refuse_other_settings(path: Path, plan: EvalPlan) -> None:
    earlier, now = read_json(path / MANIFEST).get(SETTINGS) or {}, plan.to_json()
    names = [name for name in now if name not in _FREE_SETTINGS and earlier.get(name, now[name]) != now[name]]
    if names:
        raise UsageError(
            f"The evaluation in {path} was begun with other settings and cannot be resumed with these. Changed: "
            f"{', '.join(names)}. Undo the change, or begin a new evaluation."
        )
