"""Shows how far a build is, on stderr: a live line in a terminal, a plain line a minute elsewhere."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import TYPE_CHECKING

from rich.console import Console

if TYPE_CHECKING:
    from aworld_train.dataset.progress import BuildProgress

LIVE_AFTER_SECONDS = 2.0
LINE_SECONDS = 60.0

_REFRESH_SECONDS = 0.25


@contextmanager
def shown(progress: "BuildProgress", console: Console) -> Iterator[None]:
    over = Event()
    show = _show_live if console.is_terminal and not console.is_dumb_terminal else _show_lines
    thread = Thread(target=show, args=(progress, console, over), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _show_live(progress: "BuildProgress", console: Console, over: Event) -> None:
    began = time.monotonic()
    if over.wait(LIVE_AFTER_SECONDS):
        return
    from rich.live import Live
    from rich.table import Table
    from rich.text import Text

    with Live(console=console, transient=True, auto_refresh=False) as live:
        while not over.wait(_REFRESH_SECONDS):
            minutes, seconds = divmod(int(time.monotonic() - began), 60)
            line = Table.grid(padding=(0, 1))
            line.add_row(
                Text("●", style="green"),
                Text(progress.text(), no_wrap=True, overflow="ellipsis"),
                Text(f"{minutes}:{seconds:02d}", "dim"),
            )
            live.update(line, refresh=True)


def _show_lines(progress: "BuildProgress", console: Console, over: Event) -> None:
    while not over.wait(LINE_SECONDS):
        console.print(progress.text(), markup=False, soft_wrap=True)
