"""Output of commands: results on stdout, everything else on stderr.

With ``--json`` stdout has exactly one JSON object, also for an error, so that a script can always parse it.
"""

import json
import os
import sys
from typing import Any

from rich.console import Console

from aworld_train.errors import DiskFull

err = Console(stderr=True, highlight=False)
out = Console(highlight=False)


def print_json(value: Any) -> None:
    """Write one JSON object and nothing else to stdout.

    Raises:
        DiskFull: The disk is full. If the reader has closed the pipe, the process silently ends with exit code 1.
    """
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


def note(message: str) -> None:
    """Print a message on stderr; markup in it is not interpreted."""
    err.print(
        message, markup=False, soft_wrap=True
    )  # not wrapped, so that a path or a sentence can be found as a whole
