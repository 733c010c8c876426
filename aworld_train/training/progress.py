"""Shows the progress of a run: live on a terminal, plain lines elsewhere, nothing when quiet."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Self

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text


class Work(NamedTuple):
    """What the framework's trainer reported last, in its own words: for how long so far, and how old the report is."""

    name: str
    seconds: float
    age: float = 0.0

    def text(self) -> str:
        return f"{self.name.replace('_', ' ')} {clock(self.seconds)}"


@dataclass(frozen=True)
class Status:
    """The state of a run at one moment; ``None`` means not known yet."""

    phase: str  # starting, validation or training; evaluating outside a training run
    step: int  # that is played; in a validation the step after which it is
    steps: int
    episodes: int  # of this step, or tasks of this validation, that have ended
    episodes_expected: int
    reward: float | None = None
    accuracy: float | None = None
    tool_calls: int = 0  # in all episodes of the run, validations included
    tokens_per_second: float | None = None  # that the last step was trained on, by GPU
    seconds_left: float | None = None
    name: str = ""
    steps_done: int = 0
    rewards: tuple[float, ...] = ()
    accuracies: tuple[float, ...] = ()
    losses: tuple[float, ...] = ()  # of supervised training, as `val_losses`, those of its held-out rows
    val_losses: tuple[float, ...] = ()
    teacher_kls: tuple[float, ...] = ()  # divergence from a teacher, in nats a token, by step
    outcomes: Mapping[str, int] = field(default_factory=dict)
    outcomes_of: str = ""  # the step or validation of `outcomes` and `tool_seconds`, in words
    tool_errors: int = 0
    tool_seconds: float | None = None  # mean, from a call to its answer
    staleness: float | None = (
        None  # mean steps by which an episode's first weights were older than those it trained
    )
    max_staleness: float | None = None
    lost: Mapping[str, int] = field(default_factory=dict)  # in all steps, as in the summary
    updates: Mapping[str, int] = field(default_factory=dict)  # of the last step, by keys of metrics.jsonl
    gpus: int = 1  # that train, or processes where there are none
    seconds: float = 0.0  # over all starts of the run
    work: Work | None = None
    alarms: tuple[str, ...] = ()
    interval: tuple[float, float] | None = None  # of the accuracy, 95 %
    errors: int = 0  # attempts of an evaluation that could not be scored
    cost: float | None = None

    @property
    def stage(self) -> str:
        """The part of a step: ``start``, ``validation``, ``rollout``, or ``update`` once all episodes were played."""
        if self.phase == "starting":
            return "start"
        if self.phase == "training":
            return "rollout" if self.episodes < self.episodes_expected else "update"
        return self.phase

    def text(self) -> str:
        if self.phase == "starting":
            return self.work.text() if self.work else "starting the workers"
        if self.phase == "evaluating":
            return " · ".join(self._evaluation())
        parts = [f"step {self.step}/{self.steps}"]
        if self.phase == "validation":
            parts = [f"validating after step {self.step}/{self.steps}"]
        if self.episodes:
            parts.append(f"{self.episodes}/{self.episodes_expected} episodes")
        if self.losses or self.val_losses:
            last = [losses[-1] if losses else None for losses in (self.losses, self.val_losses)]
            parts += [f"loss {_show(last[0])}", f"held-out loss {_show(last[1])}"]
        else:
            parts += [f"reward {_show(self.reward)}", f"accuracy {_show(self.accuracy)}"]
            if self.teacher_kls:
                parts.append(f"KL to the teacher {self.teacher_kls[-1]:.4f}")
            parts.append(f"{self.tool_calls} tool calls")
        if self.tokens_per_second is not None:
            parts.append(f"{self.tokens_per_second:.0f} tokens/s")
        if self.seconds_left is not None:
            parts.append(f"{clock(self.seconds_left)} left")
        return " · ".join(parts)

    def _evaluation(self) -> Iterator[str]:
        yield f"{self.episodes}/{self.episodes_expected} attempts"
        if self.accuracy is not None and self.interval is not None:
            low, high = self.interval
            yield f"accuracy {self.accuracy:.1%} ({low:.1%} to {high:.1%})"
        if self.errors:
            yield f"{self.errors} errors"
        if self.tool_calls:
            yield f"{self.tool_calls} tool calls"
        if self.cost is not None:
            yield f"cost {self.cost:.2f}"
        if self.seconds_left is not None:
            yield f"{clock(self.seconds_left)} left"


class Progress:
    """Shows the progress of a run; this class shows nothing."""

    def note(self, line: str) -> None:
        """Show a line about the preparation of the run."""

    def update(self, status: Status, *, milestone: bool) -> None:
        """Show a state; a milestone is a step or a validation that ended."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None


class LineProgress(Progress):
    """One line per milestone, and one a minute between them, so that a log shows that the run is alive."""

    _max_quiet_seconds = 60.0

    def __init__(self, console: Console):
        self._console = console
        self._last = 0.0

    def note(self, line: str) -> None:
        self._console.print(line, markup=False, soft_wrap=True)

    def update(self, status: Status, *, milestone: bool) -> None:
        now = time.monotonic()
        if milestone or now - self._last > self._max_quiet_seconds:
            self._last = now
            self._console.print(status.text(), markup=False, soft_wrap=True)


class LiveProgress(Progress):
    """One line that is updated in place, with one line per milestone above it."""

    def __init__(self, console: Console):
        self._console = console
        self._began = time.monotonic()
        self._live = Live(console=console, refresh_per_second=4, transient=True)

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.__exit__(None, None, None)

    def note(self, line: str) -> None:
        self._console.print(Text(line, "dim"))

    def update(self, status: Status, *, milestone: bool) -> None:
        if milestone:
            self._console.print(Text(status.text()))
        self._live.update(live_line(Text(status.text()), self._began))


def live_line(text: Text, began: float) -> Table:
    line = Table.grid(padding=(0, 1))
    line.add_row(Text("●", style="green"), text, Text(clock(time.monotonic() - began), "dim"))
    return line


def progress_for(console: Console, *, quiet: bool) -> Progress:
    if quiet:
        return Progress()
    return LiveProgress(console) if is_live(console) else LineProgress(console)


def is_live(console: Console) -> bool:
    """Whether the console is a terminal on which lines can be rewritten; FORCE_COLOR alone makes none."""
    return console.file.isatty() and console.is_terminal and not console.is_dumb_terminal


def show_status(progress: Progress, status: Status, last_end: tuple[int, int] | None) -> tuple[int, int]:
    """Show a state, and what has ended since ``last_end`` as a milestone; returns what has ended by now, in numbers."""
    end = (status.steps_done, len(status.accuracies) + len(status.val_losses))
    if last_end not in (None, end):
        milestone = replace(status, phase="training", step=status.steps_done, episodes=0)
        progress.update(milestone, milestone=True)
    progress.update(status, milestone=False)
    return end


def _show(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def validation_name(step: int) -> str:
    return f"validation after step {step}" if step else "validation before training"


def clock(seconds: float) -> str:
    """Seconds as ``1:05`` or ``2:00:05``."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
