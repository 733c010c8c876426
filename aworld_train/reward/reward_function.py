"""A reward function of one's own with verl's signature, in place of the scorers, in a worker process as they are.

It is a scorer by the name ``AS_VERL`` and where it is, so that a worker loads it once and before the time limit counts.
"""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from numbers import Real
from typing import Any

from aworld_train.reward.scored import ScoreResult, ScoringContext
from aworld_train.reward.scorers import AS_VERL, find_scorer
from aworld_train.reward.scoring import score_extracted
from aworld_train.reward.settings import RewardSettings


async def score_by_function(function: str, settings: RewardSettings, **arguments: Any) -> ScoreResult:
    """What ``function`` says of an episode.

    Args:
        function: ``module:function`` or ``file.py:function``.
        settings: How long it may take.
        **arguments: What verl hands to reward functions.

    Raises:
        RewardError: The function cannot be loaded, or cannot be called as verl does.
    """
    asked = replace(find_scorer(AS_VERL + function), name=function)
    context = ScoringContext(info=arguments, settings=settings)
    scored = await score_extracted(asked, "", str(arguments["ground_truth"]), context)
    return replace(scored, extracted=None)


def as_scorer(function: Callable[..., Any]) -> Callable[[str, str, ScoringContext], Any]:
    """A scorer that calls ``function`` as verl does, with what the context's ``info`` holds."""

    def ask(answer: str, ground_truth: str, context: ScoringContext) -> Any:
        result = function(**context.info)
        return _read_later(result) if inspect.isawaitable(result) else _read(result)

    return ask


async def _read_later(result: Awaitable[Any]) -> Mapping[str, Any]:
    return _read(await result)


def _read(result: Any) -> Mapping[str, Any]:
    """The score, and of what else is said the numbers: verl's functions may return texts too."""
    if not isinstance(result, Mapping):
        return {"score": result, "acc": result}
    return {name: value for name, value in result.items() if isinstance(value, Real) or name == "score"}
