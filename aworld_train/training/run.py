"""One training run: its folder, environment, framework and supervision, and a summary however the run ends."""

import errno
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType

from aworld_train.adapter.base import RunPlan, TrainingFramework
from aworld_train.dataset import FileSummary
from aworld_train.errors import AworldTrainError, DiskFull, Preempted, TrainingFailure
from aworld_train.masking import mask
from aworld_train.model.tool_parser import check_tool_parser
from aworld_train.model.turns import TurnsCheck
from aworld_train.recipe import LoadedRecipe
from aworld_train.recipe.env_text import EnvText
from aworld_train.recipe.reward_checks import reward_remarks
from aworld_train.recipe.schema import Recipe
from aworld_train.training.curve import draw_curve
from aworld_train.training.environment import RunEnvironment, run_environment
from aworld_train.training.placement import Placement
from aworld_train.training.progress import Progress, Status
from aworld_train.training.run_folder import RunFolder, open_run_folder
from aworld_train.training.run_record import RunRecord
from aworld_train.training.stall import StallWatch
from aworld_train.training.start import run_plan
from aworld_train.training.stop_request import StopRequest
from aworld_train.training.summary import RunSummary, read_alarms, read_first_validation, read_seconds


def train(
    loaded: LoadedRecipe,
    framework: TrainingFramework,
    plan: RunPlan,
    run_dir: Path,
    *,
    train_data: FileSummary,
    val_data: FileSummary,
    resume: bool,
    progress: Progress,
    placement: Placement,
) -> RunSummary:
    """Run a checked recipe to its last step.

    Args:
        loaded: The recipe, with the unresolved form that the run folder keeps.
        framework: The framework that trains.
        plan: The recipe, compiled for ``run_dir``.
        run_dir: The run folder.
        train_data: The training tasks.
        val_data: The validation tasks.
        resume: Go on from the last checkpoint of an earlier attempt.
        progress: Shows the progress.
        placement: Where the run runs.

    Returns:
        The summary of a completed run.

    Raises:
        AworldTrainError: The run was not completed; ``summary.json`` says how far it got.
        KeyboardInterrupt: The run was interrupted, and its processes have ended.
    """
    recipe = loaded.recipe
    files = [*recipe.dataset.train_files, *recipe.dataset.val_files]
    data = [file if isinstance(file, EnvText) else Path(file) for file in files]
    folder = open_run_folder(
        run_dir,
        framework,
        loaded.unresolved,
        data,
        model=recipe.model.location,
        seed=recipe.trainer.seed,
        environment=recipe.cluster.environment,
        resume=resume,
    )
    summary = RunSummary(recipe.name, steps_planned=recipe.trainer.steps, run_dir=str(folder.path))
    if resume:
        summary.seconds = read_seconds(folder.path)
        summary.val["before"] = read_first_validation(folder.path)
        saved = folder.last_checkpoint()
        summary.alarms = read_alarms(folder.path, saved.step if saved else 0)
    summary.remark = placement.remark
    stop_request = StopRequest(folder.path, placement.max_save_seconds)
    try:
        with terminate_as_interrupt(), stop_request.listening():
            attempt = _Attempt(recipe, plan, folder, summary, val_data, stop_request)
            summary.write(folder.path)
            if attempt.from_step < recipe.trainer.steps:
                scorers = {*train_data.scorers, *val_data.scorers}
                tool_parser = check_tool_parser(recipe.model.location, recipe.agent.tool_parser)
                remarks = [*attempt.notes, placement.remark, *reward_remarks(recipe, scorers), tool_parser]
                for remark in filter(None, remarks):
                    progress.note(remark)
                with (
                    TurnsCheck(recipe.model.location, plan.template_options) as turns,
                    run_environment(
                        recipe, lambda line: progress.note(mask(line)), scorers, placement.environment_host
                    ) as environment,
                    progress,
                ):
                    if environment.origin:
                        folder.note_environment(environment.origin)
                    if line := turns.line():
                        progress.note(line)
                    attempt.run(environment, progress, placement)
            attempt.check_complete()
        summary.status = "completed"
        _draw(folder)
    except KeyboardInterrupt:
        summary.status = "interrupted"
        summary.error = {"kind": "interrupted", "message": "Interrupted; go on with --resume."}
        raise
    except AworldTrainError as error:
        summary.status = "interrupted" if isinstance(error, Preempted) else "failed"
        summary.error = {"kind": error.kind, "message": error.message}
        raise
    except OSError as error:
        failure = _as_failure(error, folder)
        summary.status = "failed"
        summary.error = {"kind": failure.kind, "message": failure.message}
        raise failure from error
    except BaseException as error:
        summary.status = "failed"
        summary.error = {"kind": "internal", "message": mask(f"{type(error).__name__}: {error}")}
        raise
    finally:
        _write_last(summary, folder)
        folder.close()
    return summary


def _as_failure(error: OSError, folder: RunFolder) -> AworldTrainError:
    """The error for a system call of this process that failed: a full disk, or something else."""
    if error.errno == errno.ENOSPC:
        return DiskFull(
            f"The disk is full: nothing can be written below {folder.path}. Free some space and go on with --resume."
        )
    return TrainingFailure(
        f"The run could not go on: {error}. Go on with --resume once the cause is removed."
    )


class _Attempt:
    """One start of a run, and the record of it."""

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
        self.recipe = recipe
        self.plan = plan
        self.folder = folder
        self.summary = summary
        self._stop_request = stop_request
        self.from_step = checkpoint.step if checkpoint else 0
        name = f"{folder.framework.name}-metrics-{time.time_ns()}.jsonl"
        self._metrics_file = folder.path / "logs" / name
        self.record = RunRecord(folder, summary, self._metrics_file, self.from_step)
        self.notes = [*folder.framework.prepare_resume(folder.checkpoints, checkpoint), *self.record.notes]
        limit = recipe.dataset.val_limit
        self._expected = {
            "training": recipe.trainer.batch_size * recipe.rollout.n,
            "validation": recipe.rollout.val_n * (val_data.rows if limit < 0 else min(limit, val_data.rows)),
            "starting": 0,
        }
        self._began = time.monotonic()
        self._stall = StallWatch(recipe.trainer.stall_timeout)
        self._shown = (self.record.rows.last_trained, 0)
        self._shown_alarms = len(summary.alarms)
        # An attempt that fails before it begins leaves the figures of those before it.
        self._refresh()

    def run(self, environment: RunEnvironment, progress: Progress, placement: Placement) -> None:
        """Start the framework and wait until it ends.

        Raises:
            AworldTrainError: It failed; the message says how far it got.
        """
        try:
            run_plan(
                self.folder.framework,
                self.plan,
                self.folder.path,
                environment,
                recovery_timeout=self.recipe.env.recovery_timeout,
                metrics_file=self._metrics_file,
                watch=lambda: self._watch(progress),
                note=progress.note,
                worst_cause=self.record.worst_cause,
                # A step with a checkpoint and without metrics is validated again, so that it gets a row.
                validate_first=self.from_step == 0 or self.from_step not in self.record.rows.rows,
                nodes=placement.nodes,
            )
        except AworldTrainError as error:
            self._refresh()
            done, planned = self.summary.steps_done, self.summary.steps_planned
            checkpoint = self.folder.last_checkpoint()
            advice = (
                f"go on from step {checkpoint.step} with --resume"
                if checkpoint
                else "there is no checkpoint yet"
            )
            error_type = Preempted if self._stop_request.fulfilled else type(error)
            raise error_type(f"{error.message} The run got to step {done} of {planned}; {advice}.") from error
        self._refresh()
        # Steps may have ended between the last call of the watch and the end.
        self._show(progress)

    def check_complete(self) -> None:
        """Check that every step was done and that some episodes had a reward.

        Raises:
            TrainingFailure: The run is not complete.
        """
        self._refresh()
        summary = self.summary
        if summary.steps_done < summary.steps_planned:
            raise TrainingFailure(
                f"The framework {self.folder.framework.name} ended after step {summary.steps_done} of "
                f"{summary.steps_planned} and reported no error. Its log is {self.folder.log}; go on with --resume."
            )
        if summary.trained_episodes == 0:
            raise TrainingFailure(
                f"No episode bore a reward, so nothing was learned. See {self.folder.episodes}."
            )

    def _refresh(self) -> bool:
        return self.record.refresh(time.monotonic() - self._began)

    def _watch(self, progress: Progress) -> str | None:
        if self._refresh():
            self._stall.reset()
        self._show(progress)
        for alarm in self.summary.alarms[self._shown_alarms :]:
            progress.note(f"ALARM at step {alarm['step']}: {alarm['text']}.")
        self._shown_alarms = len(self.summary.alarms)
        if reason := self.record.alarms.reason_to_stop:
            return reason
        phase, step, counts = self.record.current()
        checkpoint = self.folder.last_checkpoint()
        saved = checkpoint.step if checkpoint else 0
        if reason := self._stop_request.reason(saved, self.record.rows.last_trained):
            return reason
        return self._stall.reason(
            f"It was in {phase} at step {step}, with {counts.episodes} of {self._expected[phase]} episodes played. The "
            f"log is {self.folder.log}."
        )

    def _show(self, progress: Progress) -> None:
        phase, step, tally = self.record.current()
        rows = self.record.rows
        last = rows.rows.get(rows.last_trained, {})
        accuracies = [row["val_accuracy"] for _, row in sorted(rows.rows.items()) if "val_accuracy" in row]
        seconds = [
            row["seconds"]
            for row_step, row in rows.rows.items()
            if row_step > self.from_step and "seconds" in row
        ]
        steps_left = self.summary.steps_planned - max(rows.last_trained, self.from_step)
        status = Status(
            phase=phase,
            step=step,
            steps=self.summary.steps_planned,
            episodes=tally.episodes,
            episodes_expected=self._expected[phase],
            reward=last.get("reward"),
            accuracy=accuracies[-1] if accuracies else None,
            tool_calls=self.summary.tool_calls,
            tokens_per_second=last.get("tokens_per_second"),
            seconds_left=sum(seconds) / len(seconds) * steps_left if seconds else None,
        )
        milestones = (rows.last_trained, len(accuracies))
        if milestones == self._shown:
            progress.update(status, milestone=False)
        else:
            self._shown = milestones
            progress.update(
                replace(status, phase="training", step=rows.last_trained, episodes=0), milestone=True
            )


@contextmanager
def terminate_as_interrupt() -> Iterator[None]:
    """Let SIGTERM, with which a scheduler ends a job, and SIGHUP, with which a terminal does, end a run as Ctrl-C does.

    Under ``nohup``, which ignores SIGHUP, the run goes on without a terminal. SIGINT is handled too, because a shell
    starts background jobs with SIGINT ignored: without a handler Ctrl-C or ``kill -INT`` would have no effect.
    """

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread can set signal handlers
        return
    numbers = [signal.SIGTERM, signal.SIGINT]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _draw(folder: RunFolder) -> None:
    """Draw the learning curve; a completed run does not fail if the picture cannot be written."""
    try:
        draw_curve(folder.path)
    except OSError as error:
        sys.stderr.write(f"The learning curve could not be drawn: {error}\n")


def _write_last(summary: RunSummary, folder: RunFolder) -> None:
    """Write the final summary, or print it on stderr if the disk is full, so that it is not lost."""
    try:
        summary.write(folder.path)
    except OSError as error:
        sys.stderr.write(f"summary.json could not be written ({error}): {summary.to_json()}\n")
