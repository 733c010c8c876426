"""The reward function that VeRL calls: the recipe's own, with a time limit, and the episode's facts beside its score.

Set through ``reward.custom_reward_function``. What it returns beside ``score`` shows up in VeRL's metrics and dumps.
"""

import asyncio
import inspect
from collections.abc import Callable
from functools import lru_cache
from typing import Any


@lru_cache(maxsize=8)
def _load(function: str) -> Callable[..., Any]:
    from aworld_train.reward.loading import load_reward

    return load_reward(function)


async def score(
    data_source: str,
    solution_str: str,
    ground_truth: str,
    extra_info: dict[str, Any],
    function: str,
    seconds: float,
    **kwargs: Any,
) -> dict[str, Any]:
    """Score one episode.

    Returns:
        ``score``, whatever else the function returned, and ``used_tool``, ``tool_calls`` and ``tool_errors``.

    Raises:
        TimeoutError: the function took longer than ``seconds``; the episode is then left out of training.
    """
    scorer = _load(function)
    arguments = {
        "data_source": data_source,
        "solution_str": solution_str,
        "ground_truth": ground_truth,
        "extra_info": extra_info,
        **kwargs,
    }
    try:
        async with asyncio.timeout(seconds):
            if inspect.iscoroutinefunction(scorer):
                result = await scorer(**arguments)
            else:
                result = await asyncio.to_thread(scorer, **arguments)
    except TimeoutError as error:
        raise TimeoutError(f"the reward function {function} took longer than {seconds:g} seconds") from error
    scores = dict(result) if isinstance(result, dict) else {"score": float(result), "acc": float(result)}
    calls = int(extra_info.get("tool_call_count") or 0)
    return scores | {
        "used_tool": float(calls > 0),
        "tool_calls": float(calls),
        "tool_errors": float(extra_info.get("tool_error_count") or 0),
    }
