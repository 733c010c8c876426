"""One training run from beginning to end: environment, folder, framework, supervision, and a summary in every case."""

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
from aworld_train.errors import AworldTrainError, DiskFull, TrainingFailure
from aworld_train.masking import mask
from aworld_train.recipe import LoadedRecipe
from aworld_train.recipe.env_text import EnvText
from aworld_train.recipe.schema import Recipe
from aworld_train.training.run_record import RunRecord
from aworld_train.training.curve import draw_curve
from aworld_train.training.environment import RunEnvironment, run_environment
from aworld_train.training.progress import Progress, Status
from aworld_train.training.run_folder import RunFolder, open_run_folder
from aworld_train.training.stall import StallWatch
from aworld_train.training.start import run_plan
from aworld_train.training.summary import RunSummary, read_seconds


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
) -> RunSummary:
    """Run a checked recipe to its last step.

    Args:
        loaded: the recipe, with the unresolved form that the run folder keeps.
        framework: what trains.
        plan: the recipe, compiled for ``run_dir``.
        run_dir: the run's folder.
        train_data: the training tasks.
        val_data: the validation tasks.
        resume: go on from the last checkpoint of an earlier attempt.
        progress: where to show what goes on.

    Returns:
        The summary of a completed run.

    Raises:
        AworldTrainError: the run did not do what it was asked to; ``summary.json`` says how far it got.
        KeyboardInterrupt: it was interrupted, and has been ended.
    """
    recipe = loaded.recipe
    data = [
        name if isinstance(name, EnvText) else file.path
        for name, file in ((recipe.dataset.train, train_data), (recipe.dataset.val, val_data))
    ]
    folder = open_run_folder(run_dir, framework, loaded.unresolved, data, resume=resume)
    summary = RunSummary(recipe.name, steps_planned=recipe.trainer.steps, run_dir=str(folder.path))
    summary.seconds = read_seconds(folder.path) if resume else 0.0
    try:
        with terminate_as_interrupt():
            attempt = _Attempt(recipe, plan, folder, summary, val_data)
            summary.write(folder.path)
            if attempt.from_step < recipe.trainer.steps:
                scorers = {*train_data.scorers, *val_data.scorers}
                with (
                    run_environment(recipe, lambda line: progress.note(mask(line)), scorers) as environment,
                    progress,
                ):
                    attempt.run(environment, progress)
            attempt.judge()
        summary.status = "completed"
        _draw(folder)
    except KeyboardInterrupt:
        summary.status = "interrupted"
        summary.error = {"kind": "interrupted", "message": "Interrupted; go on with --resume."}
        raise
    except AworldTrainError as error:
        summary.status = "failed"
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
    """What the run's own writing met: a full disk, or something else that the system refused."""
    if error.errno == errno.ENOSPC:
        return DiskFull(
            f"The disk is full: nothing can be written below {folder.path}. Free some space and go on with --resume."
        )
    return TrainingFailure(f"The run could not go on: {error}. Go on with --resume once that is mended.")


class _Attempt:
    """One start of a run, and the record of it."""

    def __init__(
        self, recipe: Recipe, plan: RunPlan, folder: RunFolder, summary: RunSummary, val_data: FileSummary
    ):
        checkpoint = folder.last_checkpoint()
        self.recipe = recipe
        self.plan = plan
        self.folder = folder
        self.summary = summary
        self.from_step = checkpoint.step if checkpoint else 0
        name = f"{folder.framework.name}-metrics-{time.time_ns()}.jsonl"
        self._metrics_file = folder.path / "logs" / name
        self.record = RunRecord(folder, summary, self._metrics_file, self.from_step)
        limit = recipe.dataset.val_limit
        self._expected = {
            "training": recipe.trainer.batch_size * recipe.rollout.n,
            "validation": val_data.rows if limit < 0 else min(limit, val_data.rows),
            "starting": 0,
        }
        self._began = time.monotonic()
        self._stall = StallWatch(recipe.trainer.stall_timeout)
        self._shown = (self.record.rows.last_trained, 0)

    def run(self, environment: RunEnvironment, progress: Progress) -> None:
        """Start the framework and stay until it ends.

        Raises:
            AworldTrainError: it did not end well; the message says how far it got.
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
                worst_cause=self.record.worst_cause,
                # A step whose checkpoint was written but whose metrics were not is validated again, to have a row.
                validate_first=self.from_step == 0 or self.from_step not in self.record.rows.rows,
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
            raise type(error)(
                f"{error.message} The run got to step {done} of {planned}; {advice}."
            ) from error
        self._refresh()
        # The last word of the steps, which came between the last look and the end.
        self._show(progress)

    def judge(self) -> None:
        """A run is complete only if every step was done and episodes that bear a reward were seen.

        Raises:
            TrainingFailure: it is not.
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
        phase, step, counts = self.record.current()
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
            row["seconds"] for at, row in rows.rows.items() if at > self.from_step and "seconds" in row
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
        reached = (rows.last_trained, len(accuracies))
        if reached == self._shown:
            progress.update(status, milestone=False)
        else:
            self._shown = reached
            progress.update(
                replace(status, phase="training", step=rows.last_trained, episodes=0), milestone=True
            )


@contextmanager
def terminate_as_interrupt() -> Iterator[None]:
    """While a run goes, SIGTERM (a scheduler's way to end a job) ends it as Ctrl-C does.

    SIGINT is taken too: a shell starts background jobs with it ignored, and then Ctrl-C or ``kill -INT`` did nothing.
    """

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield  # the caller keeps its own ways
        return
    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _draw(folder: RunFolder) -> None:
    """The learning curve; a picture that cannot be written does not make a completed run a failure."""
    try:
        draw_curve(folder.path)
    except OSError as error:
        sys.stderr.write(f"The learning curve could not be drawn: {error}\n")


def _write_last(summary: RunSummary, folder: RunFolder) -> None:
    """The last word. On a full disk it cannot be written, and is said on stderr, so that it is not lost."""
    try:
        summary.write(folder.path)
    except OSError as error:
        sys.stderr.write(f"summary.json could not be written ({error}): {summary.to_json()}\n")
