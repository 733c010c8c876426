"""Measures an agent: makes every attempt that is missing, and says what came of all of them.

Attempts go into the store of the evaluation's folder as they end. An evaluation that was interrupted, killed or ended
by a limit is taken up again, and makes only what is missing.
"""

import os
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aworld_train import temporary
from aworld_train.adapter.base import EpisodeModel, find
from aworld_train.adapter.episodes.agent import EpisodeAgent
from aworld_train.adapter.episodes.files import episode_files, write_files
from aworld_train.adapter.episodes.paths import EPISODES_FILE
from aworld_train.adapter.episodes.record import RUN_DIR_VARIABLE
from aworld_train.adapter.episodes.reference_agents import NullAgent, OracleAgent
from aworld_train.adapter.episodes.settings import read_settings
from aworld_train.dataset.check import first_rows
from aworld_train.errors import AworldTrainError, EvaluationFailure
from aworld_train.evaluation.folder import EvalFolder
from aworld_train.evaluation.metrics import Figures, figures_of
from aworld_train.evaluation.plan import AgentKind, EvalPlan, PlannedAttempt
from aworld_train.evaluation.playing import Player
from aworld_train.evaluation.results import Evaluation, evaluation_of
from aworld_train.evaluation.tally import PHASE, Tally
from aworld_train.interruptible import run_interruptible
from aworld_train.masking import mask
from aworld_train.model.tool_parser import check_tool_parser
from aworld_train.recipe.reward_settings import reward_settings
from aworld_train.rollout.chat_completion import ChatAnswer
from aworld_train.rollout.chat_endpoint import ChatEndpoint
from aworld_train.rollout.chat_model import ChatModel
from aworld_train.rollout.outcome import EpisodeFailure
from aworld_train.store.database import Database
from aworld_train.store.loading import attempts_by_status, set_aside
from aworld_train.store.reading import Store
from aworld_train.training.environment import HealthWatch, run_environment
from aworld_train.training.progress import Progress
from aworld_train.training.provenance import resume_command
from aworld_train.training.recorded_run import open_run
from aworld_train.training.run import terminate_as_interrupt
from aworld_train.training.run_store import RunStore

if TYPE_CHECKING:
    from aworld_train.evaluation.contamination import Contamination

_SUMMARY_SECONDS = 5.0


class NoModel(ChatModel):
    """In place of a model, for agents that ask none."""

    def __init__(self, name: str):
        self.name = name
        self.tokenizer = None
        self.faults: Counter[str] = Counter()

    def for_episode(self) -> "NoModel":
        return self

    async def close(self) -> None: ...

    async def answer(self, *arguments: Any, **options: Any) -> ChatAnswer:
        raise EpisodeFailure(f"the agent {self.name} has no model")


def evaluate(
    plan: EvalPlan, folder: EvalFolder, *, retry_errors: bool, progress: Progress
) -> "tuple[Evaluation, Figures, Contamination | None]":
    """Make all attempts that the folder does not have, and again those without a score if ``retry_errors``.

    Returns what the model's training data has of the tasks too, where that is known. Raises EvaluationFailure if the
    evaluation is not complete.
    """
    run = _EvaluationRun(plan, folder, retry_errors, progress)
    error: dict[str, str] | None = None
    status = "failed"
    contamination: Contamination | None = None
    try:
        with terminate_as_interrupt():
            run.play()
            contamination = run.contamination()
        status = "completed"
    except KeyboardInterrupt:
        status = "interrupted"
        error = {"kind": "interrupted", "message": "Interrupted; continue with --resume."}
        progress.note(f"Interrupted. The evaluation is in {folder.path}; continue with `{resume_command()}`.")
        raise
    except AworldTrainError as failure:
        error = {"kind": failure.kind, "message": failure.message}
        raise
    finally:
        seconds = run.seconds
        try:
            evaluation = evaluation_of(open_run(str(folder.path), folder.path.parent))
            figures = figures_of(evaluation, seconds=seconds)
            found = {"contamination": asdict(contamination) if contamination else None}
            folder.write_summary(_summary(folder, status, seconds, figures.to_json() | found, error))
        except AworldTrainError:
            if error is None:
                raise  # otherwise the error on the way counts, which may have left no store to read
    return evaluation, figures, contamination


class _EvaluationRun:
    def __init__(self, plan: EvalPlan, folder: EvalFolder, retry_errors: bool, progress: Progress):
        self._plan, self._folder, self._retry_errors, self._progress = plan, folder, retry_errors, progress
        self._recipe = plan.loaded.recipe
        self._began = time.monotonic()
        self._tally = Tally(plan.tasks * plan.section.attempts, plan.prices)
        self._missing: list[PlannedAttempt] = []
        self._next_summary = 0.0

    @property
    def seconds(self) -> float:
        """How long all processes have worked on it; one that has nothing to make does not."""
        own = time.monotonic() - self._began if self._missing else 0.0
        return round(self._folder.seconds + own, 1)

    def play(self) -> None:
        recipe, folder = self._recipe, self._folder.path
        write_files(folder, episode_files(recipe))
        os.environ[RUN_DIR_VARIABLE] = str(folder)
        self._write_summary()
        self._missing = self._plan.attempts()
        store = RunStore(
            folder,
            recipe.store,
            self._note,
            set_aside=self._find_missing,
            model=self._plan.model,
            is_new=not self._folder.is_resumed,
        )
        with store, self._progress:
            if not self._missing:
                self._progress.note("All attempts were made before: nothing is left to do.")
                return
            with (
                temporary.folder_of("eval") as scratch,
                run_environment(
                    recipe,
                    self._note,
                    self._plan.data.scorers,
                    sessions=min(recipe.eval.concurrency, len(self._missing)),
                ) as environment,
            ):
                os.environ |= environment.variables()
                player = self._player(scratch, HealthWatch(environment, recipe.env.recovery_timeout))
                run_interruptible(player.play(self._missing))
        if player.limit_reached is not None:
            raise EvaluationFailure(
                f"The limit {player.limit_reached} was reached after {self._tally.ended} of {self._tally.expected} "
                "attempts. Raise it and continue with --resume."
            )

    def contamination(self) -> "Contamination | None":
        if self._plan.checkpoint is None:
            return None
        from aworld_train.evaluation.contamination import find_contamination

        return find_contamination(self._recipe.dataset.val_files, self._plan.checkpoint)

    def _find_missing(self, database: Database) -> None:
        """Find the attempts that are to be made, and set those aside that are made again."""
        known = attempts_by_status(database, PHASE)
        again = {
            key for key, scored in known.items() if scored is None or (self._retry_errors and not scored)
        }
        set_aside(database, PHASE, again)
        kept = known.keys() - again
        self._missing = [attempt for attempt in self._plan.attempts() if attempt.key not in kept]
        with Store(database.location) as store:
            for key, figures in store.ended_figures(PHASE):
                self._tally.add(key.task, figures)
        self._tally.begin()

    def _player(self, scratch: Path, health: HealthWatch) -> Player:
        plan, recipe = self._plan, self._recipe
        rows: list[Mapping[str, Any]] = []
        for file in recipe.dataset.val_files:
            rows += first_rows(file, plan.tasks - len(rows))
        return Player(
            plan,
            self._folder.path,
            rows,
            self._model(scratch),
            self._agent(),
            self._tally,
            self._watch,
            health,
        )

    def _agent(self) -> EpisodeAgent | None:
        settings = read_settings(str(self._folder.path / EPISODES_FILE))
        match self._plan.agent:
            case AgentKind.oracle:
                return OracleAgent(settings, reward_settings(self._recipe))
            case AgentKind.null:
                return NullAgent(settings)
        return None

    def _model(self, scratch: Path) -> EpisodeModel:
        plan, recipe = self._plan, self._recipe
        if plan.agent is not AgentKind.recipe:
            return NoModel(plan.agent.value)
        if plan.endpoint is not None:
            section = plan.section
            return ChatEndpoint(
                plan.endpoint,
                concurrency=section.concurrency,
                request_timeout=section.request_timeout,
                answers=plan.answers,
            )
        if remark := check_tool_parser(recipe.model.location, recipe.agent.tool_parser):
            self._note(remark)
        self._note("loading the model")
        return find(recipe.trainer.framework).load_model(recipe, scratch, model_url=None)

    def _note(self, line: str) -> None:
        self._progress.note(mask(line))

    def _watch(self) -> None:
        self._progress.update(self._tally.status(), milestone=False)
        if time.monotonic() >= self._next_summary:
            self._write_summary()

    def _write_summary(self) -> None:
        self._next_summary = time.monotonic() + _SUMMARY_SECONDS
        tally = self._tally
        figures = {
            "accuracy": tally.accuracy,
            "n": None,
            "errors": tally.errors,
            "attempts": tally.ended,
            "attempts_expected": tally.expected,
            "faults": tally.faults,
        }
        self._folder.write_summary(_summary(self._folder, "running", self.seconds, figures, None))


def _summary(
    folder: EvalFolder,
    status: str,
    seconds: float,
    figures: Mapping[str, Any],
    error: Mapping[str, str] | None,
) -> dict[str, Any]:
    after = {name: figures.get(name) for name in ("accuracy", "n", "errors")}
    return {
        "name": folder.path.name,
        "status": status,
        "steps_done": 0,
        "steps_planned": 0,
        "val": {"before": None, "after": after},
        **figures,
        "seconds": seconds,
        "run_dir": str(folder.path),
        "error": error,
    }
