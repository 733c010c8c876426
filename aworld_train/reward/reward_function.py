"""A user-defined reward function in place of the scorers, as a ``Scorer`` that runs in a worker process."""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import cache
from numbers import Real
from typing import Any

from msgspec.structs import replace as changed

from aworld_train.episode.score import ScoreResult
from aworld_train.reward.loading import absolute_reference, load_reward
from aworld_train.reward.score_types import ScoringContext
from aworld_train.reward.scorers import Scorer, ScorerKind, is_async
from aworld_train.reward.scoring import score_extracted
from aworld_train.reward.settings import RewardSettings


async def score_by_function(function: str, settings: RewardSettings, **arguments: Any) -> ScoreResult:
    scorer = reward_function_scorer(function)
    context = ScoringContext(info=arguments, settings=settings)
    result = await score_extracted(scorer, "", str(arguments["ground_truth"]), context)
    return changed(result, extracted=None)


def reward_function_scorer(spec: str) -> Scorer:
    """The scorer that calls the reward function which ``spec`` names with the context's ``info`` as its keywords."""
    return replace(_load(absolute_reference(spec)), name=spec)


@cache
def _load(reference: str) -> Scorer:
    function = load_reward(reference)
    return Scorer(
        name=reference,
        reference=reference,
        function=_with_scorer_signature(function),
        arguments=3,
        is_async=is_async(function),
        isolated=True,
        kind=ScorerKind.reward_function,
    )


def _with_scorer_signature(function: Callable[..., Any]) -> Callable[[str, str, ScoringContext], Any]:
    def score(answer: str, ground_truth: str, context: ScoringContext) -> Any:
        result = function(**context.info)
        return _await_result(result) if inspect.isawaitable(result) else _read_result(result)

    return score


async def _await_result(result: Awaitable[Any]) -> Mapping[str, Any]:
    return _read_result(await result)


def _read_result(result: Any) -> Mapping[str, Any]:
    """The score and the numbers beside it; reward functions may return texts too, which are left out."""
    if not isinstance(result, Mapping):
        return {"score": result, "acc": result}
    return {name: value for name, value in result.items() if isinstance(value, Real) or name == "score"}
