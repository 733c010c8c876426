"""The results of an evaluation: every attempt at every task, as its run folder records them.

An attempt without a score is an error: something failed that the agent did not bring about. It is counted apart and is
in no average. Everything else is scored, whatever the agent did.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from aworld_train.errors import UsageError
from aworld_train.evaluation.episode_lines import PHASE, cost_of, score_of
from aworld_train.evaluation.statistics import Scores
from aworld_train.store.reading import EpisodeKey, Store, TaskKey
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
    """One attempt at a task; ``score`` is from 0 to 1, or None for an error.

    ``seed`` is None where it was greedy. ``prompt_tokens`` are those of all prompts as they were given to the model.
    ``faults`` are failed requests that were sent again, by kind. ``unscored`` names the scorer that could not score the
    answer, and how the scoring ended.
    """

    episode: str
    task: str
    number: int
    seed: int | None
    score: float | None
    outcome: str
    cause: str | None
    answer: str | None
    scorer: str
    turns: int
    tool_calls: int
    tool_errors: int
    prompt_tokens: int
    sampled_tokens: int
    seconds: float
    model_seconds: float
    tool_seconds: float
    cost: float | None
    parts: Mapping[str, float] = field(default_factory=dict)
    suspicions: tuple[str, ...] = ()
    faults: Mapping[str, int] = field(default_factory=dict)
    began: float = 0.0
    unscored: str = ""

    @property
    def is_error(self) -> bool:
        return self.score is None


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
        ordered = sorted(self.attempts, key=lambda attempt: attempt.number)
        scores: dict[str, list[float]] = {task: [] for task in self.tasks}
        for attempt in ordered:
            if attempt.score is not None:
                scores[attempt.task].append(attempt.score)
        return scores

    @cached_property
    def attempts_by_task(self) -> Mapping[str, Sequence[TaskAttempt]]:
        found: dict[str, list[TaskAttempt]] = defaultdict(list)
        for attempt in sorted(self.attempts, key=lambda each: each.number):
            found[attempt.task].append(attempt)
        return found


def open_evaluation(name: str, runs: Path) -> Evaluation:
    """The evaluation of this name below ``runs``, or the one in this folder."""
    return evaluation_of(open_run(name, runs))


def evaluation_of(run: RecordedRun) -> Evaluation:
    settings = run.manifest.get(SETTINGS)
    store = find_run_store(run) if isinstance(settings, dict) else None
    if store is None or not isinstance(settings, dict):
        raise UsageError(f"{run.path} is not an evaluation. `aworld-train eval RECIPE` makes one.")
    with store:
        return Evaluation(run, settings, _tasks(store), _attempts(store, settings.get("prices")))


def _tasks(store: Store) -> dict[str, EvalTask]:
    return {key.id: _task(key, row) for key, row in store.task_rows()}


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


def _attempts(store: Store, prices: Mapping[str, float] | None) -> list[TaskAttempt]:
    return [attempt_of(key, line, prices) for key, line in store.ended_lines(PHASE)]


def attempt_of(
    key: EpisodeKey, line: Mapping[str, Any], prices: Mapping[str, float] | None = None
) -> TaskAttempt:
    """The attempt that an episode was; ``line`` is that of ``traces/episodes.jsonl``."""
    score = score_of(line)
    return TaskAttempt(
        key.id,
        key.task,
        key.attempt,
        line.get("seed"),
        score,
        str(line.get("outcome") or ""),
        line.get("cause"),
        line.get("extracted"),
        str(line.get("scorer") or "") if score is not None else "",
        int(line.get("turns") or 0),
        int(line.get("tool_calls") or 0),
        int(line.get("tool_errors") or 0),
        int(line.get("given_tokens") or 0),
        int(line.get("sampled_tokens") or 0),
        float(line.get("seconds") or 0.0),
        float(line.get("generate_seconds") or 0.0),
        float(line.get("tool_seconds") or 0.0),
        cost_of(line, prices),
        line.get("parts") or {},
        tuple(line.get("suspicions") or ()),
        line.get("faults") or {},
        key.began,
        f"{line.get('scorer') or ''}: {line['scoring']}" if score is None and line.get("scoring") else "",
    )
