"""Starts a Python program whose arguments must not appear on its command line, which every user can read.

An argument that a recipe takes from the environment may be a secret. So the arguments come in an environment variable,
which is removed before the program begins; the command line holds references to them.
"""

import json
import os
import runpy
import sys
from pathlib import Path

VARIABLE = "AGENT_ARGUMENTS"


def main() -> None:
    arguments: list[str] = json.loads(os.environ.pop(VARIABLE))
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        sys.path[0] = str(Path.cwd())
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        sys.path[0] = str(Path(arguments[0]).resolve().parent)
        runpy.run_path(arguments[0], run_name="__main__")


if __name__ == "__main__":
    main()
