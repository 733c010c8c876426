"""The reward function that a recipe names, checked at the command line and not minutes later in a worker's log.

The signature is VeRL's (its ``NaiveRewardManager``), so that functions written for VeRL work unchanged.
"""

import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aworld_train.errors import RewardError
from aworld_train.user_code import load_user_code

ARGUMENTS = ("data_source", "solution_str", "ground_truth", "extra_info")


def load_reward(spec: str) -> Callable[..., Any]:
    """The reward function that ``module:function`` or ``path/file.py:function`` names."""
    function = load_function(spec)
    if fault := _signature_fault(function):
        raise RewardError(
            f"The reward {spec!r} cannot be called with the keywords of reward functions, "
            f"{', '.join(ARGUMENTS)}: {fault}. Write def {getattr(function, '__name__', 'score')}"
            "(data_source, solution_str, ground_truth, extra_info=None, **kwargs)."
        )
    return function


def load_function(spec: str) -> Callable[..., Any]:
    return load_user_code(spec, "reward", RewardError)


def is_reward_function(function: Callable[..., Any]) -> bool:
    return not _signature_fault(function)


def _signature_fault(function: Callable[..., Any]) -> str:
    try:
        inspect.signature(function).bind(**dict.fromkeys(ARGUMENTS))
    except (TypeError, ValueError) as error:
        return str(error)
    return ""


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
