"""A reward function of one's own with verl's signature, in place of the scorers, in a worker process as they are."""

import inspect
from collections.abc import Mapping
from dataclasses import replace
from numbers import Real
from typing import Any

from aworld_train.reward.loading import load_reward
from aworld_train.reward.scored import Scored, ScoringContext
from aworld_train.reward.scorers import find_scorer
from aworld_train.reward.scoring import score_extracted
from aworld_train.reward.settings import RewardSettings

_ASK = f"{__name__}:ask"


async def score_by_function(function: str, settings: RewardSettings, **arguments: Any) -> Scored:
    """What ``function`` says of an episode.

    Args:
        function: ``module:function`` or ``file.py:function``.
        settings: How long it may take.
        **arguments: What verl hands to reward functions.
    """
    asked = replace(find_scorer(_ASK), name=function)
    context = ScoringContext(info={"function": function, "arguments": arguments}, settings=settings)
    scored = await score_extracted(asked, "", str(arguments["ground_truth"]), context)
    return replace(scored, extracted=None)


async def ask(answer: str, ground_truth: str, context: ScoringContext) -> Mapping[str, Any]:
    """In the worker: the function's result with the numbers in it."""
    result = load_reward(context.info["function"])(**context.info["arguments"])
    if inspect.isawaitable(result):
        result = await result
    if not isinstance(result, Mapping):
        return {"score": result, "acc": result}
    return {name: value for name, value in result.items() if isinstance(value, Real) or name == "score"}
