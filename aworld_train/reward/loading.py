"""The reward function that a recipe names, checked at the command line and not minutes later in a worker's log."""

import inspect
from collections.abc import Callable
from typing import Any

from aworld_train.errors import RewardError
from aworld_train.user_code import load_own

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
    if fault := _unlike_verl(function):
        raise RewardError(
            f"The reward {spec!r} cannot be called as verl calls it, with the keywords "
            f"{', '.join(ARGUMENTS)}: {fault}. Write def {getattr(function, '__name__', 'score')}"
            "(data_source, solution_str, ground_truth, extra_info=None, **kwargs)."
        )
    return function


def load_function(spec: str) -> Callable[..., Any]:
    """The function that ``spec`` names, however it is to be called.

    Raises:
        RewardError: It cannot be found or imported, or is not callable.
    """
    return load_own(spec, "reward", RewardError)


def has_verl_signature(function: Callable[..., Any]) -> bool:
    """Whether a function can be called as verl calls rewards."""
    return not _unlike_verl(function)


def _unlike_verl(function: Callable[..., Any]) -> str:
    """Why a function cannot be called as verl calls rewards; empty if it can."""
    try:
        inspect.signature(function).bind(**dict.fromkeys(ARGUMENTS))
    except (TypeError, ValueError) as error:
        return str(error)
    return ""
