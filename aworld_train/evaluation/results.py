"""The results of an evaluation: every attempt at every task, as its run folder records them.

An attempt without a score is an error: something failed that the agent did not bring about. It is counted apart and is
in no average. Everything else is scored, whatever the agent did.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from aworld_train.episode.figures import EpisodeFigures
from aworld_train.errors import UsageError
from aworld_train.evaluation.statistics import Scores
from aworld_train.evaluation.tally import PHASE, cost_of
from aworld_train.store.reading import EpisodeKey, TaskKey
from aworld_train.training.recorded_run import RecordedRun, open_run
from aworld_train.training.run_files import SETTINGS
from aworld_train.training.run_store import find_run_store


@dataclass(frozen=True)
class EvalTask:
    """A task of an evaluation; ``index`` is its number in the dataset, ``name`` its id in the benchmark.

    ``id`` is a part of the SHA-256 of its dataset's row, so the same task has the same id in every evaluation. ``tags``
    are ``extra_info.tags``, or else the dataset's ``ability``.
    """

    id: str
    index: int
    name: str
    source: str
    question: str
    correct_answer: str
    level: str = ""
    scorer: str = ""
    tags: tuple[str, ...] = ()


@dataclass(frozen=True)
class TaskAttempt:
    """One attempt at a task: its episode in the store, and the figures of that; ``cost`` as ``cost_of`` has it."""

    key: EpisodeKey
    figures: EpisodeFigures
    cost: float | None = None

    @property
    def score(self) -> float | None:
        """From 0 to 1; None for an error."""
        return self.figures.accuracy

    @property
    def ended(self) -> float:
        return self.key.began + (self.figures.seconds or 0.0)

    @property
    def is_error(self) -> bool:
        return self.score is None

    @property
    def scorer(self) -> str:
        """What scored it; empty for an error."""
        return "" if self.is_error else self.figures.scorer or ""

    @property
    def unscored(self) -> str:
        """Where an answer could not be scored, the scorer and how the scoring ended; else empty."""
        figures = self.figures
        return f"{figures.scorer or ''}: {figures.scoring}" if self.is_error and figures.scoring else ""

    @property
    def parts(self) -> dict[str, float]:
        return {name: float(part) for name, part in (self.figures.parts or {}).items() if part is not None}


@dataclass(frozen=True)
class Evaluation:
    """An evaluation, finished or not: tasks that were begun, in the dataset's order, and attempts that ended."""

    run: RecordedRun
    settings: Mapping[str, Any]
    tasks: Mapping[str, EvalTask]
    attempts: Sequence[TaskAttempt]

    @property
    def name(self) -> str:
        return self.run.name

    @property
    def expected(self) -> int:
        return int(self.settings["tasks"]) * int(self.settings["attempts"])

    @property
    def errors(self) -> Sequence[TaskAttempt]:
        return [attempt for attempt in self.attempts if attempt.is_error]

    @cached_property
    def scores(self) -> Scores:
        """The scores of each task's attempts, by the task's id, in the order of the attempts."""
        return {
            task: [
                attempt.score for attempt in self.attempts_by_task.get(task, ()) if attempt.score is not None
            ]
            for task in self.tasks
        }

    @cached_property
    def attempts_by_task(self) -> Mapping[str, Sequence[TaskAttempt]]:
        found: dict[str, list[TaskAttempt]] = defaultdict(list)
        for attempt in sorted(self.attempts, key=lambda each: each.key.attempt):
            found[attempt.key.task].append(attempt)
        return found


def open_evaluation(name: str, runs: Path) -> Evaluation:
    """The evaluation of this name below ``runs``, or the one in this folder."""
    return evaluation_of(open_run(name, runs))


def evaluation_of(run: RecordedRun) -> Evaluation:
    settings = run.manifest.get(SETTINGS)
    store = find_run_store(run) if isinstance(settings, dict) else None
    if store is None or not isinstance(settings, dict):
        raise UsageError(f"{run.path} is not an evaluation. `aworld-train eval RECIPE` makes one.")
    prices = settings.get("prices")
    with store:
        tasks = {key.id: _task(key, row) for key, row in store.task_rows()}
        ended = store.ended_figures(PHASE)
        attempts = [TaskAttempt(key, figures, cost_of(figures, prices)) for key, figures in ended]
    return Evaluation(run, settings, tasks, attempts)


def _task(key: TaskKey, row: Mapping[str, Any]) -> EvalTask:
    info = row.get("extra_info") or {}
    tags = info.get("tags") or ()
    labels = ([tags] if isinstance(tags, str) else tags) or [row.get("ability")]
    return EvalTask(
        key.id,
        key.index,
        str(info.get("id") or ""),
        key.source,
        key.question,
        key.answer,
        str(info.get("level") or ""),
        str(info.get("scorer") or ""),
        tuple(dict.fromkeys(str(label) for label in labels if label)),
    )
