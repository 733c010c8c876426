"""From the reward a recipe names to the function, checked before a run depends on it.

A spec is ``module:function`` or ``path/file.py:function``. verl loads the function by itself in its reward
workers; what is loaded here is the same code in the same way, so a fault shows at the command line and not
minutes later in a worker's log.
"""

import importlib
import importlib.util
import inspect
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from aworld_train.errors import RewardError, nearest

# How verl calls a reward function (its NaiveRewardManager): all by keyword.
ARGUMENTS = ("data_source", "solution_str", "ground_truth", "extra_info")


def load_reward(spec: str) -> Callable[..., Any]:
    """The reward function that ``spec`` names.

    Args:
        spec: ``module:function`` or ``path/file.py:function``; a relative path counts from the working
            directory.

    Raises:
        RewardError: It cannot be found or imported, is not callable, or cannot be called as verl does.
    """
    function = load_function(spec)
    _check_signature(spec, function)
    return function


def load_function(spec: str) -> Callable[..., Any]:
    """The function that ``spec`` names, however it is to be called.

    Raises:
        RewardError: It cannot be found or imported, or is not callable.
    """
    origin, name = _parts(spec)
    module = _load_file(spec, origin) if isinstance(origin, Path) else _load_module(spec, origin)
    if not hasattr(module, name):
        known = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        hint = nearest(name, known)
        meant = f" Did you mean {hint!r}?" if hint else ""
        raise RewardError(f"The reward {spec!r} names {name!r}, which is not in {origin}.{meant}")
    function = getattr(module, name)
    if not callable(function):
        raise RewardError(f"The reward {spec!r} is of type {type(function).__name__}, not a function.")
    return function  # type: ignore[no-any-return]


def has_verl_signature(function: Callable[..., Any]) -> bool:
    """Whether a function can be called as verl calls rewards."""
    try:
        inspect.signature(function).bind(**dict.fromkeys(ARGUMENTS))
    except (TypeError, ValueError):
        return False
    return True


def _parts(spec: str) -> tuple[Path | str, str]:
    origin, colon, name = spec.rpartition(":")
    if not (colon and origin and name.isidentifier()):
        raise RewardError(
            f"The reward {spec!r} is not of the form module:function or path/file.py:function, "
            "such as rewards/own.py:score."
        )
    if origin.endswith(".py"):
        return Path(origin).expanduser().resolve(), name
    if not all(part.isidentifier() for part in origin.split(".")):
        raise RewardError(
            f"The reward {spec!r}: {origin!r} is neither a module nor a path that ends with .py. "
            "Write path/file.py:function or package.module:function."
        )
    return origin, name


def _load_file(spec: str, path: Path) -> ModuleType:
    if not path.is_file():
        raise RewardError(f"The reward {spec!r}: there is no file {path}.")
    # Not entered in sys.modules, as verl does not either: what needs that must fail here too.
    found = importlib.util.spec_from_file_location(f"reward_file_{path.stem}", path)
    if found is None or found.loader is None:
        raise RewardError(f"The reward {spec!r}: {path} cannot be imported.")
    module = importlib.util.module_from_spec(found)
    try:
        found.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise RewardError(_import_message(spec, str(path), error)) from error
    return module


def _load_module(spec: str, name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        raise RewardError(_import_message(spec, name, error)) from error


def _import_message(spec: str, origin: str, error: BaseException) -> str:
    message = f"The reward {spec!r}: importing {origin} failed with {type(error).__name__}: {error}."
    if isinstance(error, ModuleNotFoundError):
        message += " Install it, or put its directory on PYTHONPATH."
    return message


def _check_signature(spec: str, function: Callable[..., Any]) -> None:
    try:
        inspect.signature(function).bind(**dict.fromkeys(ARGUMENTS))
    except (TypeError, ValueError) as error:
        raise RewardError(
            f"The reward {spec!r} cannot be called as verl calls it, with the keywords "
            f"{', '.join(ARGUMENTS)}: {error}. Write def {getattr(function, '__name__', 'score')}"
            "(data_source, solution_str, ground_truth, extra_info=None, **kwargs)."
        ) from error
