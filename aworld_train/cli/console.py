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
    sys.stdout.write(json.dumps(value, ensure_ascii=False, default=str) + "\n")
    sys.stdout.flush()


def note(message: str) -> None:
    """Tell a person something on stderr; markup in ``message`` is not interpreted."""
    err.print(message, markup=False)
