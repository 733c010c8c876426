"""What a command says and where: results on stdout, everything else on stderr.

With ``--json`` stdout carries exactly one JSON object, an error included, so a script can always parse it.
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
        DiskFull: There is no room for it. Where nobody reads on, the process ends with exit code 1, without a word.
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
        # What is left in the buffer must not fail once more when the process ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise DiskFull(f"The output cannot be written: {error.strerror}.") from error


def note(message: str) -> None:
    """Tell a person something on stderr; markup in ``message`` is not interpreted."""
    err.print(message, markup=False, soft_wrap=True)  # a path or a sentence is searched for as a whole
