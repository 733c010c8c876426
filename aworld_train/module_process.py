"""A module of this package in a process of its own, which reads JSON on its input and answers on its output.

What takes seconds to import or to compute then neither delays this process nor stays in its memory.
"""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any


def start(module: str, question: Any, variables: Mapping[str, str] | None = None) -> "subprocess.Popen[str]":
    """Start a module; the question is not in the arguments, which every user of the machine can read."""
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", module],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, **(variables or {})},
    )
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError), process.stdin as stream:
        json.dump(question, stream)
    process.stdin = None  # `communicate` fails with one that is closed
    return process
