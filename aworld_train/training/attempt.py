"""One start of a run: the tool environment and the framework, watched until they end."""

import time

from aworld_train.adapter.base import RunPlan
from aworld_train.dataset import FileSummary
from aworld_train.errors import AworldTrainError, Preempted, TrainingFailure, TransientFailure
from aworld_train.masking import mask
from aworld_train.recipe.env_text import shown
from aworld_train.recipe.schema import Mode, Recipe
from aworld_train.store.database import Database
from aworld_train.store.loading import supersede
from aworld_train.training.environment import NO_TOOLS, RunEnvironment, run_environment
from aworld_train.training.placement import Placement
from aworld_train.training.progress import Progress
from aworld_train.training.prompt_check import PromptCheck
from aworld_train.training.run_folder import RunFolder
from aworld_train.training.run_metrics import METRICS_LOG, RunMetrics
from aworld_train.training.run_requests import StopRequest, early_stop_reason
from aworld_train.training.run_status import RunStatus, trainer_work
from aworld_train.training.run_store import RunStore
from aworld_train.training.start import run_plan
from aworld_train.training.summary import RunSummary
from aworld_train.training.watchdog import StallWatch


class Attempt:
    """One start of a run; ``began`` once the tool environment was there and the framework was started."""

    def __init__(
        self,
        recipe: Recipe,
        plan: RunPlan,
        folder: RunFolder,
        summary: RunSummary,
        val_data: FileSummary,
        stop_request: StopRequest,
    ):
        checkpoint = folder.last_checkpoint()
        self._recipe = recipe
        self._plan = plan
        self.folder = folder
        self.summary = summary
        self._val_data = val_data
        self._stop_request = stop_request
        self.from_step = checkpoint.step if checkpoint else 0
        name = f"{folder.framework.name}{METRICS_LOG}{time.time_ns()}.jsonl"
        self._metrics_file = folder.path / "logs" / name
        trainer = recipe.trainer
        ahead = 0 if trainer.mode is Mode.sync else trainer.async_.staleness
        self._record = RunMetrics(folder, summary, self._metrics_file, self.from_step, ahead)
        self._notes = [*folder.framework.prepare_resume(folder.checkpoints, checkpoint), *self._record.notes]
        limit = recipe.dataset.val_limit
        val_tasks = val_data.rows if limit < 0 else min(limit, val_data.rows)
        self._status = RunStatus(recipe, self._record, val_tasks)
        self._began = time.monotonic()
        self._stall = StallWatch(recipe.trainer.stall_timeout, folder.path)
        self._shown_alarms = len(summary.alarms)
        summary.stopped_early = self._reason_to_stop_early()
        self.began = False
        # An attempt that fails before it begins leaves the figures of those before it.
        self._refresh()

    @property
    def is_done(self) -> bool:
        is_over = self.from_step >= self.summary.steps_planned or self.summary.stopped_early is not None
        return is_over and not self._record.validates_first

    def again(self) -> "Attempt":
        return Attempt(
            self._recipe, self._plan, self.folder, self.summary, self._val_data, self._stop_request
        )

    def run(self, placement: Placement, progress: Progress, scorers: set[str]) -> None:
        for note in self._notes:
            progress.note(note)
        if not self._recipe.plays_episodes:
            with progress:
                self._run_framework(NO_TOOLS, progress, placement)
            return
        with (
            run_environment(
                self._recipe, lambda line: progress.note(mask(line)), scorers, placement.environment_host
            ) as environment,
            self._store(progress),
            progress,
        ):
            if environment.origin:
                self.folder.note_environment(environment.origin)
            self._run_framework(environment, progress, placement)

    def _store(self, progress: Progress) -> RunStore:
        def set_aside(database: Database) -> None:
            supersede(database, self.from_step, validated=not self._record.validates_first)

        return RunStore(
            self.folder.path,
            self._recipe.store,
            lambda line: progress.note(mask(line)),
            set_aside=set_aside,
            model=shown(self._recipe.model.location or ""),
        )

    def _run_framework(self, environment: RunEnvironment, progress: Progress, placement: Placement) -> None:
        self.began = True
        self._stall.environment = environment
        self._stall.reset()
        try:
            with PromptCheck(self._recipe, self._plan, environment, progress.note) as prompts:
                run_plan(
                    self.folder.framework,
                    self._plan,
                    self.folder.path,
                    environment,
                    recovery_timeout=self._recipe.env.recovery_timeout,
                    metrics_file=self._metrics_file,
                    watch=lambda: self._watch(progress) or prompts.reason_to_stop(),
                    note=progress.note,
                    worst_cause=self._record.worst_cause,
                    validate_first=self._record.validates_first,
                    nodes=placement.nodes,
                )
        except AworldTrainError as error:
            self._refresh()
            if self._stop_request.fulfilled and self._stop_request.early:
                self.summary.stopped_early = self._stop_request.early
                self._status.show(progress, trainer_work(self.folder.path))
                progress.note(self._stop_request.early)
                return
            done, planned = self.summary.steps_done, self.summary.steps_planned
            saved = self.folder.saved_step
            advice = f"continue from step {saved} with --resume" if saved else "no checkpoint yet"
            error_type = type(error)
            if self._stop_request.fulfilled:
                error_type = Preempted
            elif self._stall.stuck is not None and self._stall.stuck.transient:
                error_type = TransientFailure
            raise error_type(f"{error.message} The run got to step {done} of {planned}; {advice}.") from error
        self._refresh()
        # Steps may have ended between the last call of the watch and the end.
        self._status.show(progress, trainer_work(self.folder.path))

    def check_complete(self) -> None:
        self._refresh()
        summary = self.summary
        if summary.steps_done < summary.steps_planned and not summary.stopped_early:
            raise TrainingFailure(
                f"The framework {self.folder.framework.name} ended after step {summary.steps_done} of "
                f"{summary.steps_planned} and reported no error. Its log is {self.folder.log}; continue with --resume."
            )
        if self._recipe.plays_episodes and summary.trained_episodes == 0:
            raise TrainingFailure(
                f"No episode had a reward, so nothing was learned. See {self.folder.episodes}."
            )

    def _refresh(self) -> bool:
        return self._record.refresh(time.monotonic() - self._began)

    def _reason_to_stop_early(self) -> str | None:
        qualities = self._record.qualities
        is_last = max(qualities, default=0) >= self.summary.steps_planned
        return None if is_last else early_stop_reason(qualities, self._recipe.trainer.early_stop)

    def _watch(self, progress: Progress) -> str | None:
        if self._refresh():
            self._stall.reset()
        self._status.show(progress, trainer_work(self.folder.path))
        for alarm in self.summary.alarms[self._shown_alarms :]:
            progress.note(f"ALARM at step {alarm['step']}: {alarm['text']}.")
        self._shown_alarms = len(self.summary.alarms)
        if reason := self._record.reason_to_stop:
            return reason
        if reason := self._reason_to_stop_early():
            self._stop_request.stop_early(reason, max(self._record.qualities))
        phase, step, counts = self._record.current()
        if reason := self._stop_request.reason(self.folder.saved_step, self._record.rows.last_trained):
            return reason
        played = f", with {counts.episodes} of {self._status.expected[phase]} episodes played"
        return self._stall.reason(
            f"It was in {phase} at step {step}{played if self._recipe.plays_episodes else ''}. The log is "
            f"{self.folder.log}."
        )
