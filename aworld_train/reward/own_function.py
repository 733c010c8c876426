"""A reward function of one's own with verl's signature, in place of the scorers, in a process that can be ended."""

import math
from collections.abc import Mapping
from typing import Any

from aworld_train.reward.scored import Scored, ScoreOutcome
from aworld_train.reward.workers import WorkerFailed, WorkerTimeout, run_in_worker


async def score_by_function(function: str, seconds: float, **arguments: Any) -> Scored:
    """What ``function`` says of an episode.

    Args:
        function: ``module:function`` or ``file.py:function``.
        seconds: How long it may take.
        **arguments: What verl hands to reward functions.
    """
    try:
        result = await run_in_worker("aworld_train.reward.own_function:_call", seconds, function, arguments)
    except WorkerTimeout as error:
        return _unscored(function, ScoreOutcome.timeout, str(error))
    except WorkerFailed as error:
        return _unscored(function, ScoreOutcome.error, str(error))
    parts = {name: value for name, value in result.items() if name != "score"}
    value = result.get("score")
    if not isinstance(value, int | float) or not math.isfinite(value):
        return _unscored(function, ScoreOutcome.error, f"{function} returned the score {value!r}")
    return Scored(float(value), None, ScoreOutcome.scored, parts, (), None, function)


def _call(function: str, arguments: dict[str, Any]) -> dict[str, float]:
    """In the worker: numbers by name, ``score`` among them."""
    import asyncio
    import inspect

    from aworld_train.reward.loading import load_reward

    result = load_reward(function)(**arguments)
    if inspect.iscoroutine(result):
        result = asyncio.run(result)
    if not isinstance(result, Mapping):
        return {"score": float(result), "acc": float(result)}
    numbers = {name: value for name, value in result.items() if isinstance(value, int | float)}
    return {str(name): float(value) for name, value in numbers.items()}


def _unscored(function: str, outcome: ScoreOutcome, cause: str) -> Scored:
    return Scored(None, None, outcome, {}, (), cause, function)
