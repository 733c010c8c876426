"""One training run, with a summary however it ends."""

import errno
import signal
import sys
import time
from contextlib import AbstractContextManager
from pathlib import Path
from types import FrameType

from aworld_train.adapter.base import RunPlan, TrainingFramework
from aworld_train.dataset import FileSummary
from aworld_train.errors import (
    AworldTrainError,
    DiskFull,
    EnvironmentFailure,
    Preempted,
    TrainingFailure,
    TransientFailure,
)
from aworld_train.interruptible import signal_handlers
from aworld_train.masking import mask
from aworld_train.model.tool_parser import check_tool_parser
from aworld_train.recipe import LoadedRecipe
from aworld_train.recipe.env_text import EnvText
from aworld_train.recipe.reward_checks import reward_remarks
from aworld_train.recipe.trackers import tracker_remarks
from aworld_train.training.attempt import Attempt
from aworld_train.training.curve import draw_curve
from aworld_train.training.placement import Placement
from aworld_train.training.progress import Progress
from aworld_train.training.provenance import resume_command
from aworld_train.training.run_folder import RunFolder, open_run_folder
from aworld_train.training.run_models import MODEL_FROM, RunModel
from aworld_train.training.run_requests import StopRequest
from aworld_train.training.summary import RunSummary

_FIRST_SECONDS, _MAX_SECONDS = 5.0, 300.0
_LOOK_SECONDS = 0.5


def train(
    loaded: LoadedRecipe,
    framework: TrainingFramework,
    plan: RunPlan,
    run_dir: Path,
    *,
    model: RunModel | None,
    train_data: FileSummary,
    val_data: FileSummary,
    resume: bool,
    progress: Progress,
    placement: Placement,
) -> RunSummary:
    """Run a checked recipe to its last step; ``plan`` is compiled for ``run_dir``.

    However it ends, ``summary.json`` says how far it got, and its processes have ended.
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
        steps=recipe.trainer.steps,
        more={} if model is None else {MODEL_FROM: model.to_json()},
        written=plan.files,
    )
    summary = RunSummary(recipe.name, steps_planned=recipe.trainer.steps, run_dir=str(folder.path))
    if resume:
        summary.take_up(folder.saved_step)
    summary.remark = placement.remark
    stop_request = StopRequest(folder.path, placement.max_save_seconds)
    scorers = {*train_data.scorers, *val_data.scorers}
    try:
        with terminate_as_interrupt(), stop_request.listening():
            first = Attempt(recipe, plan, folder, summary, val_data, stop_request)
            if not first.is_done:
                tool_parser = check_tool_parser(recipe.model.location, recipe.agent.tool_parser)
                remarks = [*reward_remarks(recipe, scorers), *tracker_remarks(recipe, folder.path)]
                if model is not None:
                    progress.note(f"The model is that of step {model.step} of the run {model.run}.")
                for remark in (placement.remark, *plan.remarks, *remarks, tool_parser):
                    if remark:
                        progress.note(remark)
            else:
                steps = recipe.trainer.steps
                done = summary.stopped_early or f"{steps} of {steps} steps were done."
                progress.note(f"Nothing is left to train: {done}")
            _complete(
                first, Restarts(recipe.trainer.max_restarts, stop_request), placement, progress, scorers
            )
        summary.status = "completed"
        _draw(folder)
    except KeyboardInterrupt:
        summary.status = "interrupted"
        summary.error = {"kind": "interrupted", "message": "Interrupted; continue with --resume."}
        progress.note(f"Interrupted. The run is in {folder.path}; continue with `{resume_command()}`.")
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


class Restarts:
    def __init__(self, most: int, stop_request: StopRequest):
        self._most = most
        self._stop_request = stop_request
        self.done = 0

    @property
    def pause(self) -> float:
        """Seconds before the next one, doubled each time: what was lost may take a while to come back."""
        return min(_MAX_SECONDS, _FIRST_SECONDS * 2.0**self.done)

    def wait(self, failure: AworldTrainError, progress: Progress) -> None:
        if self.done >= self._most or self._stop_request.received:
            raise failure
        progress.note(f"{failure.message}")
        progress.note(f"Restart {self.done + 1} of {self._most} in {self.pause:.0f} seconds.")
        due = time.monotonic() + self.pause
        while time.monotonic() < due:
            time.sleep(_LOOK_SECONDS)
            if self._stop_request.received:
                raise failure
        self.done += 1


def _complete(
    attempt: Attempt, restarts: Restarts, placement: Placement, progress: Progress, scorers: set[str]
) -> None:
    """Run an attempt, and others after a failure that may not happen again, until one has done all steps."""
    summary, folder = attempt.summary, attempt.folder
    while True:
        summary.write(folder.path)
        try:
            if not attempt.is_done:
                attempt.run(placement, progress, scorers)
            attempt.check_complete()
            return
        except (TransientFailure, EnvironmentFailure) as failure:
            # An environment that cannot even be started the first time is a fault of the recipe.
            if isinstance(failure, EnvironmentFailure) and not (attempt.began or restarts.done):
                raise
            restarts.wait(failure, progress)
            error = failure.message
        folder.add_attempt()
        summary.restart_from(folder.saved_step, error)
        attempt = attempt.again()


def _as_failure(error: OSError, folder: RunFolder) -> AworldTrainError:
    if error.errno == errno.ENOSPC:
        return DiskFull(
            f"The disk is full: nothing can be written below {folder.path}. Free some space and continue with --resume."
        )
    return TrainingFailure(
        f"The run could not continue: {error}. Continue with --resume once the cause is removed."
    )


def terminate_as_interrupt() -> AbstractContextManager[None]:
    """Let SIGTERM and SIGHUP end a run as Ctrl-C does; under ``nohup``, which ignores SIGHUP, it runs on.

    SIGINT is handled too, because a shell starts background jobs with SIGINT ignored.
    """

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    numbers = [signal.SIGTERM, signal.SIGINT]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    return signal_handlers(dict.fromkeys(numbers, interrupt))


def _draw(folder: RunFolder) -> None:
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
