"""A stage of a synthesis: an evaluation in a folder of its own, whose result is written when it is over.

A stage that was cut off continues with the attempts that are missing, takes answers to requests from its file of them,
and is not begun again once its result is there.
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from aworld_train.atomic import write_text
from aworld_train.dataset import build
from aworld_train.errors import EvaluationFailure, UsageError
from aworld_train.evaluation.evaluate import evaluate
from aworld_train.evaluation.folder import open_folder
from aworld_train.evaluation.plan import plan_evaluation
from aworld_train.evaluation.results import Evaluation
from aworld_train.recipe import LoadedRecipe
from aworld_train.recipe.schema import CassetteMode
from aworld_train.recipe.tree import merge
from aworld_train.rollout.chat_client import EndpointAddress
from aworld_train.training.environment import RunEnvironment, run_environment
from aworld_train.training.progress import Progress
from aworld_train.training.run_files import MANIFEST
from aworld_train.training.run_store import find_run_store

_RESULT = "result.json"
_ANSWERS = "answers.jsonl"
_SPLIT = "tasks"


class Stages(ExitStack):
    """The stages of a synthesis, which share one environment; it is started for the first that needs it.

    ``recipe`` is what they have in common; the names of their folders begin with that of ``folder``.
    """

    def __init__(self, recipe: LoadedRecipe, endpoint: EndpointAddress, folder: Path, progress: Progress):
        super().__init__()
        self.recipe, self.endpoint, self.folder, self.progress = recipe, endpoint, folder, progress
        self._environment: RunEnvironment | None = None

    def run(
        self,
        name: str,
        rows: Sequence[Mapping[str, Any]],
        changes: Mapping[str, Any],
        read: Callable[[Evaluation], Any],
        *,
        checkpoint: Path | None = None,
    ) -> Any:
        """What ``read`` makes of an evaluation of ``rows`` with ``changes`` of the recipe, as JSON; {} without rows.

        With a ``checkpoint`` that model is asked, and not the endpoint.
        """
        folder = stage_folder(self.folder, name)
        result = folder / _RESULT
        if not rows:
            return {}
        model = str(checkpoint) if checkpoint else self.endpoint.model
        _refuse_others(folder, {"model": model, "recipe": changes, "tasks": rows})
        if result.is_file():
            return json.loads(result.read_text(encoding="utf-8"))
        tasks = folder / "dataset" / f"{_SPLIT}.parquet"
        if not tasks.is_file():
            source = folder / "tasks.jsonl"
            write_text(source, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
            build("jsonl", tasks.parent, files=[source], splits={_SPLIT: 1.0})
        evaluation = self._evaluate(folder, tasks, changes, checkpoint)
        if evaluation.attempts and len(evaluation.errors) == len(evaluation.attempts):
            cause = evaluation.errors[0].figures.cause
            raise EvaluationFailure(
                f"No attempt of the stage {name} could be scored: {cause}. Mend that and continue with --resume."
            )
        found = read(evaluation)
        write_text(result, json.dumps(found, ensure_ascii=False, indent=1) + "\n")
        return found

    def _evaluate(
        self, folder: Path, tasks: Path, changes: Mapping[str, Any], checkpoint: Path | None
    ) -> Evaluation:
        recipe = merge(merge(self.recipe.unresolved, changes), {"name": folder.name})
        if "env" not in changes:
            recipe = merge(recipe, {"env": self._running()})
        endpoint = None if checkpoint else self.endpoint
        plan = plan_evaluation(recipe, checkpoint=checkpoint, endpoint=endpoint, dataset=[tasks])
        plan = replace(plan, answers=folder / _ANSWERS if endpoint else None)
        is_begun = (folder / MANIFEST).is_file()
        opened = open_folder(folder, plan, resume=is_begun)
        self.progress.note(f"{folder.name}: {plan.tasks} tasks, {plan.section.attempts} attempts each")
        try:
            evaluation, _, _ = evaluate(plan, opened, retry_errors=is_begun, progress=self.progress)
        finally:
            opened.close()
        return evaluation

    def _running(self) -> dict[str, Any]:
        """The section ``env`` for the environment of all stages; empty where the recipe names one that is up."""
        recipe = self.recipe.recipe
        if recipe.env.started_from is None or recipe.env.cassette.mode is CassetteMode.replay:
            return {}
        if self._environment is None:
            self._environment = self.enter_context(
                run_environment(recipe, self.progress.note, sessions=recipe.eval.concurrency)
            )
        os.environ |= self._environment.variables()
        return {"docker_dir": None, "mcp_servers": None, "url": self._environment.url}


def stage_folder(folder: Path, name: str) -> Path:
    return folder.with_name(f"{folder.name}-{name}")


def _refuse_others(folder: Path, settings: Mapping[str, Any]) -> None:
    """Note what a stage is begun with, and refuse another one later."""
    file = folder / "stage.json"
    if not file.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        write_text(file, json.dumps(settings, ensure_ascii=False))
        return
    earlier = json.loads(file.read_text(encoding="utf-8"))
    if changed := [name for name, value in settings.items() if earlier.get(name) != value]:
        raise UsageError(
            f"{folder} was begun with something else ({', '.join(changed)}): an option, the seeds, or what --against "
            "names has changed. Undo the change, or choose another --name."
        )


def texts_by_task(evaluation: Evaluation) -> dict[str, tuple[str, int]]:
    """What the model wrote to each task, by the task's name, and how many tools it called; errors are left out."""
    tasks = {
        attempt.key.id: (evaluation.tasks[attempt.key.task].name, attempt.figures.tool_calls or 0)
        for attempt in evaluation.attempts
        if not attempt.is_error
    }
    store = find_run_store(evaluation.run)
    assert store is not None
    found = {}
    with store:
        for episode in store.whole_episodes(list(tasks)):
            name, calls = tasks[episode.head.id]
            found[name] = (episode.content.answer if episode.content else "", calls)
    return found
