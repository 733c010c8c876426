"""Reads the files that the framework and the episodes append to, and sums them up."""

import os
from collections import Counter
from dataclasses import asdict
from pathlib import Path

from aworld_train.adapter.base import StepRow, val_quality
from aworld_train.atomic import write_bytes
from aworld_train.episode.figures import EpisodeFigures, read_figures
from aworld_train.json_lines import JsonLinesTail, decoded_lines
from aworld_train.training.alarms import AlarmWatch
from aworld_train.training.episode_counts import COUNTS, TOTALS, CountsByStep, EpisodeCounts
from aworld_train.training.run_folder import RunFolder
from aworld_train.training.sparkline import means
from aworld_train.training.step_rows import StepRows
from aworld_train.training.summary import RunSummary, Validation

METRICS_LOG = "-metrics-"
"""In the name of each attempt's file of metrics, which has the framework before it and the time after it."""
_MAX_DROPPED_TASKS = 50  # in the summary
_MAX_CAUSES = 50  # in the summary
_MAX_REWARDS = 60  # in the summary
_LOST = ("stale_episodes", "stale_tokens", "rejected_episodes", "rejected_tokens", "lost_samplers")
_REFUSALS = 5  # in a row that end a run: what one text brings about alone is not the endpoint's refusal


class RunMetrics:
    """The rows and the episodes per step of a run, and the summary computed from them.

    ``from_step`` is the step of the checkpoint that this attempt resumes; later steps are dropped. ``validates_first``:
    the model is measured before training, at the first step, or where its metrics or its last validation are missing.
    ``ahead`` is for how many steps more episodes of a trained step may be under way: its figures become whole by then.
    """

    def __init__(
        self, folder: RunFolder, summary: RunSummary, metrics_file: Path, from_step: int, ahead: int = 0
    ):
        self.folder = folder
        self.summary = summary
        self.rows = StepRows(folder.framework.name, folder.metrics, from_step)
        self.from_step = from_step
        self.training, self.validation = CountsByStep(), CountsByStep()
        self.accuracies = self.rows.figures("val_accuracy")
        self.val_losses = self.rows.figures("val_loss")
        self._unread = self._left_unread(metrics_file)
        last = self.rows.rows.get(from_step, {})
        for row in self._unread:
            last = {**last, **row.figures} if row.step == from_step else last
        is_end = from_step >= summary.steps_planned
        self.validates_first = from_step == 0 or not last or (is_end and val_quality(last) is None)
        self.notes = _take_up_episodes(folder, from_step, validated=not self.validates_first)
        self.alarms = AlarmWatch()
        self._observed, self._ahead = from_step, ahead
        self._incomplete: set[int] = set()  # steps whose row lacks episodes that have ended since
        self._kept_from = from_step + 1  # the first step whose figures can still change
        self._refusals: list[str] = []  # since an episode was scored
        self._rewards = self.rows.figures("reward")
        self._steps = folder.framework.step_rows(metrics_file)
        self._episodes = JsonLinesTail(folder.episodes, read_figures)
        self._earlier_seconds = summary.seconds

    def refresh(self, seconds: float) -> bool:
        """Read the lines written since the last call; returns whether there were any."""
        # An episode's line is written before the step that trains on it is.
        step_rows = [*self._unread, *self._steps.read()]
        self._unread = []
        episodes = self._episodes.read()
        for figures in episodes:
            kind = self.validation if figures.validate else self.training
            kind.add(figures)
            if figures.step > self.from_step or not self.from_step:
                self._note_refusal(figures)
            is_late = figures.step in self.rows.rows and not figures.validate
            if is_late and self._ahead and figures.step >= self._kept_from:
                self._incomplete.add(figures.step)
        updated_steps = {self.rows.add(step_row) for step_row in step_rows}
        if updated_steps:
            updated_steps |= self._incomplete
            self._incomplete.clear()
            for step in sorted(updated_steps):
                self._complete(step)
            self._look_for_alarms()
            self.rows.write(updated_steps)
            self._kept_from = self.rows.last_trained - self._ahead
            self.training.sum_up(self._kept_from)
            self.validation.sum_up(max(self.accuracies, default=0))
        self._summarise(seconds)
        if updated_steps:
            for step in updated_steps:
                if (reward := self.rows.rows[step].get("reward")) is not None:
                    self._rewards[step] = reward
            rewards = [reward for _, reward in sorted(self._rewards.items())]
            self.summary.reward = rewards[-1] if rewards else None
            self.summary.rewards = list(means(rewards, _MAX_REWARDS))
            self.summary.write(self.folder.path)
        return bool(episodes or step_rows)

    def _left_unread(self, metrics_file: Path) -> list[StepRow]:
        """What the last attempt reported of steps up to the checkpoint, and was killed before it took them up."""
        earlier = sorted(set(metrics_file.parent.glob(f"*{METRICS_LOG}*")) - {metrics_file})
        if not earlier:
            return []
        reported = self.folder.framework.step_rows(earlier[-1]).read()
        return [row for row in reported if row.step <= self.from_step and row.step not in self.rows.rows]

    def current(self) -> tuple[str, int, EpisodeCounts]:
        """The phase (``starting``, ``validation`` or ``training``), its step, and that step's episodes."""
        step = self.rows.last_trained
        played_step = max(self.training, default=0)
        if played_step > step and played_step in self.validation:
            return "validation", played_step, self.validation[played_step]
        if played_step > step:
            return "training", played_step, self.training[played_step]
        if step in self.validation and "val_accuracy" not in self.rows.rows.get(step, {}):
            return "validation", step, self.validation[step]
        # A resumed run has the rows of earlier attempts while its workers are starting.
        if not self.rows.rows or 0 < self.from_step == step:
            return "starting", 0, EpisodeCounts()
        if step >= self.summary.steps_planned:
            return "training", step, self.training.get(step, EpisodeCounts())
        return "training", step + 1, EpisodeCounts()

    @property
    def qualities(self) -> dict[int, float]:
        """How good each validation was (see ``val_quality``)."""
        return self.accuracies or {step: -loss for step, loss in self.val_losses.items()}

    @property
    def reason_to_stop(self) -> str | None:
        if len(self._refusals) >= _REFUSALS:
            return f"{self._refusals[-1]} (every such episode would be dropped, so the run was ended)."
        return self.alarms.reason_to_stop

    def _note_refusal(self, figures: EpisodeFigures) -> None:
        if figures.refusal:
            self._refusals.append(figures.refusal)
        elif figures.reward is not None:
            self._refusals.clear()

    def worst_cause(self) -> str | None:
        """The most frequent reason why episodes of the last step could not be used."""
        tallies = [t[max(t)] for t in (self.training, self.validation) if t]
        counts = sum((t.causes for t in tallies), Counter[str]())
        return counts.most_common(1)[0][0] if counts else None

    def _complete(self, step: int) -> None:
        row = self.rows.rows[step]
        if row.get("val_loss") is not None:
            self.val_losses[step] = row["val_loss"]
        if step in self.training and "loss" in row:
            tally = self.training[step]
            row |= {
                **tally.means,
                **{name: tally.totals[name] for name in TOTALS},
                **{name: tally.counts(name) for name in COUNTS},
                "episodes": tally.episodes,
                "outcomes": dict(tally.outcomes),
                "dropped": tally.dropped.total(),
                # 1 if every conversation only grew; below 1, tokens that paths share are processed more than once.
                "unique_tokens_share": tally.unique_tokens / tally.row_tokens if tally.row_tokens else None,
                "reward_parts": tally.part_means,
                "unscored": dict(tally.unscored),
                "suspicions": tally.suspicion_shares,
                "length_drift": self._length_drift(tally),
            }
        tally = self.validation.get(step, EpisodeCounts())
        if tally.scored and step in self.rows.validated:
            self.accuracies[step] = tally.correct / tally.scored
            row |= {
                "val_accuracy": self.accuracies[step],
                "val_n": tally.scored,
                "val_errors": tally.episodes - tally.scored,
                "val_format_misses": tally.counts("format_misses"),
                "val_reward_parts": tally.part_means,
            }

    def _look_for_alarms(self) -> None:
        last = self.rows.last_trained
        is_end = last >= self.summary.steps_planned
        for step in range(self._observed + 1, last + 1 - (0 if is_end else self._ahead)):
            row = self.rows.rows.get(step)
            if row is not None:
                raised = self.alarms.observe(step, row, self.training.get(step, EpisodeCounts()))
                self.summary.alarms += [asdict(alarm) for alarm in raised]
            self._observed = step

    def _length_drift(self, tally: EpisodeCounts) -> float | None:
        first = self.training.first.sampled_per_episode if self.training.first else None
        current = tally.sampled_per_episode
        return current / first if first and current is not None else None

    def _summarise(self, seconds: float) -> None:
        summary = self.summary
        checkpoint = self.folder.last_checkpoint()
        summary.seconds = round(self._earlier_seconds + seconds, 1)
        # A framework may write a step's checkpoint before the step's metrics.
        saved = checkpoint.step if checkpoint else 0
        summary.steps_done = max(self.rows.last_trained, self.from_step, saved)
        summary.checkpoint = str(checkpoint.model) if checkpoint else None
        training, validation = self.training.total(), self.validation.total()
        summary.episodes, summary.trained_episodes = training.episodes, training.scored
        summary.tool_calls = sum(counts.totals["tool_calls"] for counts in (training, validation))
        summary.tool_errors = sum(counts.totals["tool_errors"] for counts in (training, validation))
        summary.environment_losses = training.environment_losses + validation.environment_losses
        summary.outcomes = dict(training.outcomes)
        summary.causes = dict(training.outcome_causes.most_common(_MAX_CAUSES))
        dropped = training.dropped.most_common(_MAX_DROPPED_TASKS)
        summary.dropped = {str(task): count for task, count in dropped}
        summary.lost = {name: sum(values) for name in _LOST if (values := self.rows.figures(name).values())}
        summary.unscored, summary.suspicions = dict(training.unscored), dict(training.suspicions)
        if 0 in self.validation:
            summary.val["before"] = _validation(self.validation[0])
        summary.loss = self.rows.rows.get(self.rows.last_trained, {}).get("loss")
        summary.val_loss["before"] = self.val_losses.get(0, summary.val_loss["before"])
        if measured := [step for step in self.val_losses if step]:
            summary.val_loss["after"] = self.val_losses[max(measured)]
        last = max(self.accuracies, default=0)
        if last in self.validation and last > 0:
            tally = self.validation[last]
            summary.val["after"] = _validation(tally)
            summary.correct_with_tool = tally.correct_with_tool / tally.correct if tally.correct else None


def _validation(tally: EpisodeCounts) -> Validation:
    return Validation(
        accuracy=round(tally.correct / tally.scored, 6) if tally.scored else None,
        n=tally.scored,
        errors=tally.episodes - tally.scored,
    )


def _take_up_episodes(folder: RunFolder, step: int, *, validated: bool) -> list[str]:
    """Set aside broken lines and the episodes after ``step``, which are played again; returns what, in sentences."""
    lines, broken = decoded_lines(folder.episodes, lambda line: (line + b"\n", read_figures(line)))
    remaining: list[bytes] = []
    later: list[bytes] = []
    for line, figures in lines:
        is_done = (
            0 <= figures.step <= step
            and step > 0
            and (validated or figures.step < step or not figures.validate)
        )
        (remaining if is_done else later).append(line)
    if not later and not broken:
        return []
    with folder.superseded.open("ab") as file:
        os.fchmod(file.fileno(), 0o600)
        file.writelines([*later, *(line + b"\n" for line in broken)])
        file.flush()
        os.fsync(file.fileno())
    write_bytes(folder.episodes, b"".join(remaining))
    notes = []
    if later:
        notes.append(f"Episodes after the checkpoint of step {step} that are played again: {len(later)}.")
    if broken:
        notes.append(
            f"{folder.episodes.name} had lines that were cut off when they were written: {len(broken)}."
        )
    return [*notes, f"What was set aside is in {folder.superseded}."]
