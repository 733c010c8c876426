"""Shows the progress of a run: a live line on a terminal, plain lines elsewhere, nothing when quiet."""

import time
from dataclasses import dataclass
from typing import Protocol, Self

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text


@dataclass(frozen=True)
class Status:
    """The state of a run at one moment. Rates are per second; ``None`` means not known yet."""

    phase: str
    step: int
    steps: int
    episodes: int
    episodes_expected: int
    reward: float | None = None
    accuracy: float | None = None
    tool_calls: int = 0
    tokens_per_second: float | None = None
    seconds_left: float | None = None

    def text(self) -> str:
        """The state in one line."""
        if self.phase == "starting":
            return "starting the workers"
        if self.phase == "evaluating":
            return f"{self.episodes}/{self.episodes_expected} tasks · {self.tool_calls} tool calls"
        parts = [f"step {self.step}/{self.steps}"]
        if self.phase == "validation":
            parts = [f"validating after step {self.step}/{self.steps}"]
        if self.episodes:
            parts.append(f"{self.episodes}/{self.episodes_expected} episodes")
        parts.append(f"reward {_show(self.reward)}")
        parts.append(f"accuracy {_show(self.accuracy)}")
        parts.append(f"{self.tool_calls} tool calls")
        if self.tokens_per_second is not None:
            parts.append(f"{self.tokens_per_second:.0f} tokens/s")
        if self.seconds_left is not None:
            parts.append(f"{_clock(self.seconds_left)} left")
        return " · ".join(parts)


class Progress(Protocol):
    """Shows the progress of a run."""

    def note(self, line: str) -> None:
        """Show a line about the preparation of the run."""

    def update(self, status: Status, *, milestone: bool) -> None:
        """Show a state; a milestone is a step or a validation that ended."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


class NoProgress:
    """Shows nothing."""

    def note(self, line: str) -> None:
        """Do nothing."""

    def update(self, status: Status, *, milestone: bool) -> None:
        """Do nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None


class LineProgress(NoProgress):
    """One plain line per milestone, and one a minute between them, so that a log shows that the run is alive."""

    _max_quiet_seconds = 60.0

    def __init__(self, console: Console):
        self._console = console
        self._last = 0.0

    def note(self, line: str) -> None:
        """Print the line."""
        self._console.print(line, markup=False, soft_wrap=True)

    def update(self, status: Status, *, milestone: bool) -> None:
        """Print the state if it is a milestone, or if the last line was printed too long ago."""
        now = time.monotonic()
        if milestone or now - self._last > self._max_quiet_seconds:
            self._last = now
            self._console.print(status.text(), markup=False, soft_wrap=True)


class LiveProgress(NoProgress):
    """A line that is updated in place, with one line per milestone above it."""

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
        """Print the line above the live line."""
        self._console.print(Text(line, "dim"))

    def update(self, status: Status, *, milestone: bool) -> None:
        """Update the live line; print a milestone above it too."""
        if milestone:
            self._console.print(Text(status.text()))
        line = Table.grid(padding=(0, 1))
        line.add_row(
            Text("●", style="green"),
            Text(status.text()),
            Text(_clock(time.monotonic() - self._began), "dim"),
        )
        self._live.update(line)


def progress_for(console: Console, *, quiet: bool) -> Progress:
    """The kind of progress that suits the console."""
    if quiet:
        return NoProgress()
    return LiveProgress(console) if console.is_terminal else LineProgress(console)


def _show(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
