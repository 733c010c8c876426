"""From a function to the reference by which other processes load it."""

import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aworld_train.errors import RewardError


def name_reward(function: Callable[..., Any]) -> str:
    """``module:function``, or ``file.py:function`` for a function of the program that is running."""
    name = getattr(function, "__qualname__", "")
    module = sys.modules.get(getattr(function, "__module__", ""))
    if not name.isidentifier() or getattr(module, name, None) is not function:
        raise RewardError(
            f"The reward function {name or function!r} cannot be loaded by worker processes: it must be a plain "
            "function at the top level of a module or of a file."
        )
    if module is not None and module.__name__ != "__main__":
        return f"{module.__name__}:{name}"
    file = inspect.getsourcefile(function)
    if file is None or not Path(file).is_file():
        raise RewardError(f"The reward function {name} was not defined in a file; put it into one.")
    return f"{Path(file).resolve()}:{name}"


def absolute_reference(reference: str) -> str:
    """The same reference with the absolute path of its file; a module's stays as it is."""
    origin, _, name = reference.rpartition(":")
    return f"{Path(origin).expanduser().resolve()}:{name}" if origin.endswith(".py") else reference
