"""Output of commands: results on stdout, everything else on stderr.

With ``--json`` stdout has exactly one JSON object, also for an error, so that a script can always parse it.
"""

import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from aworld_train.errors import DiskFull

err = Console(stderr=True, highlight=False)
out = Console(highlight=False)
_GAP = 2  # between columns
_NUMBER = re.compile(r"[<+-]?[\d.,]+%?|–|")


def print_json(value: Any) -> None:
    text = json.dumps(value, ensure_ascii=False, default=str)
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which can only be written escaped
        text = json.dumps(value, default=str)
    try:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        out.on_broken_pipe()
    except OSError as error:
        # The rest of the buffer must not fail again when the process ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise DiskFull(f"The output cannot be written: {error.strerror}.") from error


def visible(text: str, kept: str = "\n\t") -> str:
    return "".join(c if c.isprintable() or c in kept else c.encode("unicode_escape").decode() for c in text)


def print_table(
    columns: Sequence[str], rows: Sequence[Sequence[str | Text]], *, optional: Sequence[str] = ()
) -> None:
    """Print one line a row, with every cell whole, as cells are copied; numbers are aligned at the right.

    No empty column is printed, and no empty heading. A narrow terminal does not show the ``optional`` columns, the
    first to go first; it wraps a line that still does not fit.
    """
    cells = [[Text(visible(cell, "")) if isinstance(cell, str) else cell for cell in row] for row in rows]
    for left_out in range(len(optional) + 1):
        shown = [
            place
            for place, name in enumerate(columns)
            if name not in optional[:left_out] and any(row[place] for row in cells)
        ]
        widths = {
            place: max(Text(columns[place]).cell_len, *(row[place].cell_len for row in cells))
            for place in shown
        }
        if sum(widths.values()) + _GAP * (len(widths) - 1) <= out.width or not out.is_terminal:
            break
    numbers = {place for place in shown if all(_NUMBER.fullmatch(row[place].plain) for row in cells)}
    heading = [[Text(name, "bold") for name in columns]] if any(columns) else []
    for row in heading + cells:
        for place in shown:
            row[place].align("right" if place in numbers else "left", widths[place])
        line = Text(" " * _GAP).join(row[place] for place in shown)
        line.rstrip()
        out.print(line, soft_wrap=True)


def print_facts(facts: Mapping[str, str]) -> None:
    width = max(map(len, facts), default=0)
    for name, value in facts.items():
        indented = value.replace("\n", "\n" + " " * (width + 2))
        out.print(Text.assemble((f"{name:<{width}}  ", "dim"), indented), soft_wrap=True)


def print_line(text: str, style: str | None = None) -> None:
    """Print a text whole on stdout: neither markup in it nor the width of the terminal has an effect."""
    out.print(text, style=style, markup=False, soft_wrap=True)


def note(message: str) -> None:
    err.print(message, markup=False, soft_wrap=True)  # whole, so that a path in it can be copied
