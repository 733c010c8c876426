"""The live screen of a run on a terminal: phase, figures with sparklines, and the last messages.

It takes the terminal's alternate screen, so that it can be redrawn at any size. Messages are printed below the
command as soon as the screen is left: at the end, at an error, and at Ctrl-Z. In the background it prints lines.
"""

import contextlib
import io
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FrameType
from typing import Self

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.text import Text

from aworld_train.training.progress import Progress, Status, clock, is_live, progress_for, validation_name
from aworld_train.training.sparkline import sparkline

_REFRESHES_PER_SECOND = 2
_MAX_MESSAGES = 500
_LABEL_WIDTH = 10
_MAX_FIGURE_WIDTH = 100
_MAX_SPARKLINE_WIDTH = 40
_STAGES = ("start", "validation", "rollout", "update")


class ScreenProgress(Progress):
    def __init__(self, console: Console):
        # Not a console that follows `sys.stderr`, which is replaced while the screen is shown.
        self._console = Console(file=console.file, highlight=False)
        self._terminal = console.file.fileno()
        self._lock = threading.RLock()
        self._messages: deque[str] = deque(maxlen=_MAX_MESSAGES)
        self._unprinted: deque[str] = deque(maxlen=_MAX_MESSAGES)
        # Replaced as a whole: a signal handler that waited for a lock of the drawing thread would wait for ever.
        self._state: tuple[Status | None, float] = (None, 0.0)
        self._live: Live | None = None
        self._entered = False
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            before = signal.getsignal(signal.SIGTSTP)
            if before != signal.SIG_IGN:
                signal.signal(signal.SIGTSTP, self._suspend)
                self._stack.callback(signal.signal, signal.SIGTSTP, before)
        messages = self._stack.enter_context(contextlib.closing(_Messages(self.note)))
        self._stack.enter_context(contextlib.redirect_stderr(messages))
        self._entered = True
        self._show()
        return self

    def __exit__(self, *_: object) -> None:
        self._entered = False
        try:
            self._hide()
        finally:
            self._stack.close()

    def note(self, line: str) -> None:
        # Without what would move the terminal's cursor.
        self._say("".join(character if character.isprintable() else " " for character in line))

    def update(self, status: Status, *, milestone: bool) -> None:
        self._state = (status, time.monotonic())
        if milestone:
            self._say(status.text())
        if self._live is None and self._entered:
            self._show()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        status, came = self._state
        height = options.height or console.height
        lines = screen(status, list(self._messages), options.max_width, height, time.monotonic() - came)
        yield Text("\n").join(lines)

    def _say(self, line: str) -> None:
        with self._lock:
            self._messages.append(line)
            is_shown = self._live is not None
            if is_shown:
                self._unprinted.append(line)
        if not is_shown:
            self._print(line)

    def _print(self, line: str) -> None:
        # The terminal may be gone, while the run continues (`disown`).
        with contextlib.suppress(OSError):
            self._console.print(line, markup=False, soft_wrap=True)

    def _show(self) -> None:
        if not _is_in_foreground(self._terminal):
            return
        live = Live(
            self,
            console=self._console,
            screen=True,
            refresh_per_second=_REFRESHES_PER_SECOND,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        with contextlib.suppress(OSError):
            live.start(refresh=True)
            with self._lock:
                self._live = live

    def _hide(self) -> None:
        with self._lock:
            live, self._live = self._live, None
        if live is not None:
            with contextlib.suppress(OSError):
                live.stop()
        while self._unprinted:
            self._print(self._unprinted.popleft())

    def _suspend(self, number: int, frame: FrameType | None) -> None:
        self._hide()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, self._suspend)
        self._show()


def train_progress(console: Console, *, quiet: bool) -> Progress:
    if quiet or not is_live(console):
        return progress_for(console, quiet=quiet)
    return ScreenProgress(console)


def _is_in_foreground(terminal: int) -> bool:
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:  # a terminal without jobs
        return True


class _Messages(io.TextIOBase):
    def __init__(self, note: Callable[[str], None]):
        self._note = note
        self._begun = ""

    def write(self, text: str) -> int:
        *lines, self._begun = (self._begun + text).split("\n")
        for line in lines:
            self._note(line)
        return len(text)

    def close(self) -> None:
        if self._begun:
            self._note(self._begun)
        super().close()


def screen(
    status: Status | None, messages: Sequence[str], width: int, height: int, passed: float = 0.0
) -> list[Text]:
    """The lines of the screen at a state ``passed`` seconds ago: the most important figures that fit, and messages."""
    figures = list(_figures(status, min(width, _MAX_FIGURE_WIDTH), passed)) if status is not None else []
    dropped = sorted(range(len(figures)), key=lambda place: figures[place][0])[max(height, 1) :]
    lines = [line for place, (_, line) in enumerate(figures) if place not in dropped]
    room = height - len(lines) - 1
    if room > 0 and messages:
        lines += [Text(), *(Text(message, "dim") for message in messages[-room:])]
    for line in lines:
        line.no_wrap, line.overflow = True, "ellipsis"
        line.truncate(width, overflow="ellipsis")
    return lines


def _figures(status: Status, width: int, passed: float) -> Iterator[tuple[int, Text]]:
    """The lines about a state from top to bottom, each with its rank: the lowest are the last to go."""
    spark = max(4, min(_MAX_SPARKLINE_WIDTH, width - _LABEL_WIDTH - 24))
    yield 0, _head(status, width, passed)
    yield 6, _bar(status.steps_done, status.steps, width)
    yield 1, _labelled("phase", _phase(status))
    if status.phase != "starting" and not status.losses:
        yield 4, _labelled("episodes", _episodes(status))
    if status.rewards:
        yield 2, _labelled("reward", _series(status.rewards, spark, "green", f"{status.rewards[-1]:.3f}"))
    for label, losses in (("loss", status.losses), ("held-out", status.val_losses)):
        if losses:
            yield 2, _labelled(label, _series(losses, spark, "green", f"{losses[-1]:.4g}"))
    if status.teacher_kls:
        shown = f"KL {status.teacher_kls[-1]:.4f}"
        yield 2, _labelled("teacher", _series(status.teacher_kls, spark, "magenta", shown))
    if status.accuracies:
        shown = f"{status.accuracies[-1]:.3f}"
        yield 5, _labelled("accuracy", _series(status.accuracies, spark, "cyan", shown))
    if status.outcomes:
        yield 3, _labelled("outcomes", _outcomes(status))
    if status.tool_calls:
        yield 7, _labelled("tools", Text(_tools(status)))
    if status.tokens_per_second is not None:
        each = " on each GPU or process" if status.gpus > 1 else ""
        yield 8, _labelled("tokens/s", Text(f"{status.tokens_per_second:,.0f}{each}"))
    if status.updates:
        yield 6, _labelled("updates", Text(_updates(status.updates)))
    if status.staleness is not None:
        most = "" if status.max_staleness is None else f" · max {status.max_staleness:g}"
        yield (
            9,
            _labelled("staleness", Text(f"mean {status.staleness:.2f}{most} steps{_left_out(status.lost)}")),
        )
    if status.alarms:
        more = f" ({len(status.alarms)} alarms)" if len(status.alarms) > 1 else ""
        yield 2, _labelled("ALARM", Text(f"{status.alarms[-1]}{more}", "bold red"))


def _head(status: Status, width: int, passed: float) -> Text:
    left = Text.assemble((status.name, "bold"), f"  step {status.steps_done} of {status.steps}")
    times = [f"{clock(status.seconds + passed)} elapsed"]
    if status.seconds_left is not None:
        times.append(f"about {clock(max(0.0, status.seconds_left - passed))} left")
    right = " · ".join(times)
    space = width - left.cell_len - len(right)
    if space < 2:  # the end of the run matters more than its name
        left = Text(f"step {status.steps_done}/{status.steps}")
        right = times[-1]
        space = max(2, width - left.cell_len - len(right))
    return left.append(" " * space).append(right)


def _bar(done: int, total: int, width: int) -> Text:
    filled = width * done // total if total else 0
    return Text.assemble(("━" * filled, "green"), ("─" * (width - filled), "dim"))


def _phase(status: Status) -> Text:
    text = Text()
    for stage in _STAGES:
        text.append("  " if text else "")
        text.append(f"▶ {stage}", "bold reverse") if stage == status.stage else text.append(stage, "dim")
    if status.work is not None:
        text.append(f"   {status.work.text()}")
    return text


def _episodes(status: Status) -> Text:
    of = validation_name(status.step) if status.phase == "validation" else f"step {status.step}"
    return Text(f"{status.episodes} of {status.episodes_expected} in {of}")


def _series(values: Sequence[float], width: int, style: str, last: str) -> Text:
    text = Text(last, "bold")
    if len(values) > 1:
        text.append("  ").append(sparkline(values, width), style)
        text.append(f"  {min(values):.3f} to {max(values):.3f}", "dim")
    return text


def _outcomes(status: Status) -> Text:
    text = Text()
    for name, count in status.outcomes.items():
        text.append(" · " if text else "")
        text.append(f"{name} {count}", "" if name == "answered" else "yellow")
    return text.append(f"  ({status.outcomes_of})", "dim")


def _tools(status: Status) -> str:
    parts = [f"{status.tool_calls:,} calls", f"{status.tool_errors:,} errors"]
    if status.tool_seconds is not None:
        parts.append(f"mean {_duration(status.tool_seconds)}")
    return " · ".join(parts)


def _left_out(counts: Mapping[str, int]) -> str:
    text = ""
    if stale := counts.get("stale_episodes"):
        text = f" · {stale:,} episodes too old ({counts.get('stale_tokens', 0):,} tokens)"
    return text + (f" · samplers replaced: {samplers}" if (samplers := counts.get("lost_samplers")) else "")


def _updates(counts: Mapping[str, int]) -> str:
    parts = []
    if (updates := counts.get("updates")) is not None:
        clipped = counts.get("clipped_updates")
        parts.append(f"{updates:g}" + ("" if clipped is None else f", {clipped:g} clipped"))
    if (groups := counts.get("groups")) is not None:
        parts.append(f"{groups:g} groups, {counts.get('equal_groups', 0):g} of equal rewards")
    if rejected := counts.get("rejected_episodes"):
        parts.append(f"{rejected:g} episodes rejected")
    return " · ".join(parts)


def _duration(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def _labelled(label: str, value: Text) -> Text:
    return Text.assemble((f"{label:<{_LABEL_WIDTH}}", "dim"), value)
