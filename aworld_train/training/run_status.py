"""Computes what a progress display shows of a run, from the run's records."""

import contextlib
import statistics
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from aworld_train import waits
from aworld_train.recipe.schema import Recipe
from aworld_train.training.episode_counts import EpisodeCounts
from aworld_train.training.progress import Progress, Status, Work, show_status, validation_name
from aworld_train.training.recorded_run import RecordedRun, open_run
from aworld_train.training.run_metrics import RunMetrics
from aworld_train.training.step_rows import StepRows

_MAX_REPORT_AGE = 3 * waits.WRITE_SECONDS
_UPDATES = ("updates", "clipped_updates", "groups", "equal_groups", "rejected_episodes")
_FILE = Path("logs", "status.json")
_WRITE_SECONDS = 1.0
_RECENT = 5  # steps, or validations, whose median duration the time left is computed from


class RunStatus:
    def __init__(self, recipe: Recipe, record: RunMetrics, val_tasks: int):
        self._record = record
        self._gpus = recipe.cluster.nodes * recipe.cluster.gpus_per_node
        self._plays = recipe.plays_episodes
        self._val_interval = recipe.trainer.val_interval
        self.expected = {
            "training": recipe.trainer.batch_size * recipe.rollout.n,
            "validation": recipe.rollout.val_n * val_tasks,
            "starting": 0,
        }
        self._clock = _StepClock()
        self._last_end = (record.rows.last_trained, 0)
        self._file = record.folder.path / _FILE
        self._file.unlink(missing_ok=True)
        self._written = float("-inf")
        self._part: Work | None = None

    def show(self, progress: Progress, work: Work | None = None) -> None:
        """Show the state, and each step or validation that has ended since the last call as a milestone."""
        status = self.current()
        if work is not None and work.age <= self._clock.stage_seconds(status):
            status = replace(status, work=work)
        self._note_part(progress, status)
        self._last_end = show_status(progress, status, self._last_end)
        self._write(status)

    def _write(self, status: Status) -> None:
        """Write the state, unless that was done within the last second."""
        if time.monotonic() - self._written < _WRITE_SECONDS:
            return
        self._written = time.monotonic()
        partial = self._file.with_suffix(".partial")
        # A disk that is full now may have room later, and a sync of a file that is soon replaced takes time.
        with contextlib.suppress(OSError):
            partial.touch(mode=0o600)
            partial.write_bytes(msgspec.json.encode(status))
            partial.replace(self._file)

    def _note_part(self, progress: Progress, status: Status) -> None:
        """Say how long a part of the start took, once another has begun; a busy process may report late."""
        if status.phase == "starting" and status.work is None:
            return
        part = status.work if status.phase == "starting" else None
        if self._part is not None and (part is None or part.name != self._part.name):
            progress.note(self._part.text())
        self._part = part

    def current(self) -> Status:
        record, summary = self._record, self._record.summary
        phase, step, counts = record.current()
        rows = record.rows
        last = rows.rows.get(rows.last_trained, {})
        accuracies = tuple(record.accuracies.values())
        self._clock.observe(phase, rows)
        shown, shown_of = self._shown_episodes(phase, step, counts)
        return Status(
            phase=phase,
            step=step,
            steps=summary.steps_planned,
            episodes=counts.episodes,
            episodes_expected=self.expected[phase],
            reward=last.get("reward"),
            accuracy=accuracies[-1] if accuracies else None,
            tool_calls=summary.tool_calls,
            tokens_per_second=last.get("tokens_per_second"),
            seconds_left=None if phase == "starting" else self._seconds_left(),
            name=summary.name,
            steps_done=max(rows.last_trained, record.from_step),
            rewards=tuple(rows.figures("reward").values()),
            accuracies=accuracies,
            losses=() if self._plays else tuple(rows.figures("loss").values()),
            val_losses=tuple(record.val_losses.values()),
            teacher_kls=tuple(rows.figures("teacher_kl").values()),
            outcomes=dict(shown.outcomes.most_common()),
            outcomes_of=shown_of,
            tool_errors=summary.tool_errors,
            tool_seconds=shown.totals["tool_seconds"] / calls
            if (calls := shown.totals["tool_calls"])
            else None,
            staleness=last.get("staleness"),
            max_staleness=last.get("max_staleness"),
            lost=summary.lost,
            updates={name: last[name] for name in _UPDATES if last.get(name) is not None},
            gpus=self._gpus,
            seconds=summary.seconds,
            alarms=tuple(f"step {alarm['step']}: {alarm['text']}" for alarm in summary.alarms),
        )

    def _shown_episodes(self, phase: str, step: int, counts: EpisodeCounts) -> tuple[EpisodeCounts, str]:
        """The episodes of the present step or validation, once there are any, else those of the last step."""
        if counts.episodes:
            return counts, validation_name(step) if phase == "validation" else f"step {step}"
        if played := max(self._record.training, default=0):
            return self._record.training[played], f"step {played}"
        if self._record.validation:
            step, counts = max(self._record.validation.items())
            return counts, validation_name(step)
        return EpisodeCounts(), ""

    def _seconds_left(self) -> float | None:
        """Seconds to the end of the run, by the median of the last steps and validations.

        A step takes as long as this process saw it take; before this start has ended one, the recorded steps count.
        """
        record = self._record
        rows, steps = record.rows, record.summary.steps_planned
        all_rows = [row for _, row in sorted(rows.rows.items())]
        step_seconds = _recent_median(self._clock.step_seconds) or _recent_median(
            _figures(all_rows, "seconds")
        )
        if step_seconds is None:
            return None
        val_seconds = (
            _recent_median(_figures(all_rows, "val_seconds")) or self._clock.first_validation_seconds or 0.0
        )
        first = max(rows.last_trained, record.from_step) + 1
        every = self._val_interval
        ahead = [
            step_seconds + (val_seconds if every and (step == steps or step % every == 0) else 0.0)
            for step in range(first, steps + 1)
        ]
        return max(0.0, ahead[0] - self._clock.since_end) + sum(ahead[1:]) if ahead else 0.0


def trainer_work(run_dir: Path) -> Work | None:
    """What the trainer of a run reported last: the innermost of the phases that it measures."""
    phases = [
        Work(wait.name, wait.seconds + process.age, process.age)
        for process in waits.trainers(waits.read(run_dir))
        if process.age <= _MAX_REPORT_AGE
        for wait in process.waits
        if wait.kind == "phase" and wait.name != "step"
    ]
    return min(phases, key=lambda work: work.seconds, default=None)


class _StepClock:
    """When steps and validations of this start ended, by this process's clock."""

    def __init__(self) -> None:
        self.step_seconds: list[float] = []
        self.first_validation_seconds: float | None = None
        self._ended: tuple[int, int] | None = None
        self._last_end: float | None = None
        self._validating_since: float | None = None
        self._stage: tuple[int, str] | None = None
        self._stage_since = 0.0

    @property
    def since_end(self) -> float:
        return 0.0 if self._last_end is None else time.monotonic() - self._last_end

    def stage_seconds(self, status: Status) -> float:
        now, stage = time.monotonic(), (status.step, status.stage)
        if stage != self._stage:
            self._stage, self._stage_since = stage, now
        return now - self._stage_since

    def observe(self, phase: str, rows: StepRows) -> None:
        now = time.monotonic()
        if phase == "validation" and self._validating_since is None:
            self._validating_since = now
        ended = (rows.last_trained, len(rows.validated))
        if self._ended is not None and ended != self._ended:
            self._count(now, self._ended[0], rows)
            self._last_end = now
        self._ended = ended

    def _count(self, now: float, last_step: int, rows: StepRows) -> None:
        steps = range(last_step + 1, rows.last_trained + 1)
        if self._last_end is not None and steps:
            validating = sum(_figures([rows.rows.get(step, {}) for step in steps], "val_seconds"))
            self.step_seconds.append(max(0.0, now - self._last_end - validating) / len(steps))
        elif not steps and self._validating_since is not None:
            self.first_validation_seconds = now - self._validating_since


def _figures(rows: Sequence[dict[str, Any]], key: str) -> list[float]:
    return [value for row in rows if isinstance(value := row.get(key), int | float)]


def _recent_median(seconds: Sequence[float]) -> float | None:
    return statistics.median(seconds[-_RECENT:]) if seconds else None


def follow(run_dir: Path, progress: Progress) -> RecordedRun:
    """Show the states of a run that another process trains until it ends; returns the run as it is then."""
    ended: tuple[int, int] | None = None
    while (run := open_run(str(run_dir), run_dir.parent)).status == "running":
        # The file comes with the first state.
        with contextlib.suppress(OSError, msgspec.DecodeError):
            status = msgspec.json.decode((run_dir / _FILE).read_bytes(), type=Status)
            ended = show_status(progress, status, ended)
        time.sleep(_WRITE_SECONDS)
    return run
