"""What a command says and where: results on stdout, everything else on stderr.

With ``--json`` stdout carries exactly one JSON object, an error included, so a script can always parse it.
"""

import json
import sys
from typing import Any

from rich.console import Console

err = Console(stderr=True, highlight=False)
out = Console(highlight=False)


def print_json(value: Any) -> None:
    """Write one JSON object and nothing else to stdout."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which can only be written escaped
        text = json.dumps(value, default=str)
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def note(message: str) -> None:
    """Tell a person something on stderr; markup in ``message`` is not interpreted."""
    err.print(message, markup=False, soft_wrap=True)  # a path or a sentence is searched for as a whole
