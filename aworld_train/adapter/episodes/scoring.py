"""The reward function that VeRL calls: the task's scorer or the recipe's own function, and the episode's facts.

Set through ``reward.custom_reward_function``; ``reward.yaml`` in the run folder says how a run scores. VeRL wants one
set of keys for all rows, so what differs from scorer to scorer travels under one key, ``scoring``, which the episode
worker takes out again. A score that cannot be had costs its own episode and nothing else: it is no number there, and
the worker leaves the episode out.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from aworld_train.adapter.episodes.paths import function_place
from aworld_train.recipe.interpolation import resolved
from aworld_train.recipe.output import written
from aworld_train.recipe.reward_settings import reward_settings
from aworld_train.recipe.schema import Recipe
from aworld_train.reward.assistant_text import without_tool_text
from aworld_train.reward.reward_function import score_by_function
from aworld_train.reward.scored import ScoreOutcome, ScoreResult
from aworld_train.reward.scoring import score as score_answer
from aworld_train.reward.settings import RewardSettings

SCORING = "scoring"
"""Key of what VeRL does not take: how the score came about, and named parts of it."""


def reward_plan(recipe: Recipe) -> dict[str, Any]:
    """What ``reward.yaml`` holds for a recipe, as plain data with references to the environment."""
    settings = reward_settings(recipe)
    settings = replace(
        settings,
        scorer=_place(settings.scorer),
        composite=replace(settings.composite, correct=_place(settings.composite.correct)),
    )
    # Tasks may name files as they are seen from where the user is.
    plan: dict[str, Any] = written(
        {
            "function": _place(recipe.reward.function),
            "directory": str(Path.cwd()),
            **settings.to_plain(),
        }
    )
    return plan


def _place(spec: str | None) -> str | None:
    return function_place(spec) if spec else None


@dataclass(frozen=True)
class _Plan:
    """How a run scores.

    Attributes:
        function: One's own in place of the scorers.
        directory: From where the paths of scorers that tasks name count.
        settings: The scorers'.
    """

    function: str | None
    directory: str
    settings: RewardSettings

    def scorer(self, named: str | None) -> str | None:
        """What a task names, as it is found from anywhere."""
        return function_place(named, self.directory) if named else None


@lru_cache(maxsize=4)
def _plan(file: str) -> _Plan:
    data = resolved(yaml.safe_load(Path(file).read_text(encoding="utf-8")))
    function, directory = data.pop("function"), data.pop("directory")
    return _Plan(function, directory, RewardSettings.from_plain(data))


async def score(
    data_source: str,
    solution_str: str,
    ground_truth: str,
    extra_info: dict[str, Any],
    settings: str,
    **kwargs: Any,
) -> dict[str, Any]:
    """Score one episode.

    Args:
        data_source: The row's.
        solution_str: The decoded response, tool results included; only used where the loop says nothing better.
        ground_truth: The row's answer.
        extra_info: The row's, with the fields that the agent loop added.
        settings: The file ``reward.yaml``.
        **kwargs: Whatever else VeRL passes.

    Returns:
        ``score`` (not a number where there is none), ``acc``, ``answered``, ``used_tool``, ``tool_calls``,
        ``tool_errors``, agents' own ``score/<agent>``, and ``scoring``.
    """
    plan = _plan(settings)
    spoken = extra_info.get("assistant_text")
    text = spoken if isinstance(spoken, str) else without_tool_text(solution_str)
    if plan.function:
        scored = await score_by_function(
            plan.function,
            plan.settings,
            data_source=data_source,
            solution_str=solution_str,
            ground_truth=ground_truth,
            extra_info=extra_info,
            **kwargs,
        )
    else:
        scored = await score_answer(
            text,
            ground_truth=ground_truth,
            scorer=plan.scorer(extra_info.get("scorer")),
            answer_schema=extra_info.get("answer_schema"),
            query=str(extra_info.get("asked") or extra_info.get("question") or ""),
            info=extra_info,
            episode=extra_info,
            settings=plan.settings,
        )
    return _for_verl(scored, extra_info)


def _for_verl(scored: ScoreResult, extra_info: Mapping[str, Any]) -> dict[str, Any]:
    value = math.nan if scored.score is None else scored.score
    calls = int(extra_info.get("tool_call_count") or 0)
    # Of composite the part that says whether the answer is right, of others the score.
    right = scored.parts.get("acc", scored.parts.get("correct", value))
    return {
        "score": value,
        "acc": float(right),
        "answered": float(scored.outcome is not ScoreOutcome.no_answer),
        "used_tool": float(calls > 0),
        "tool_calls": float(calls),
        "tool_errors": float(extra_info.get("tool_error_count") or 0),
        **{name: part for name, part in scored.parts.items() if name.startswith("score/")},
        SCORING: {
            "scorer": scored.scorer,
            "score": scored.score,
            "outcome": scored.outcome.value,
            "extracted": scored.extracted,
            "parts": dict(scored.parts),
            "cause": scored.cause,
        },
    }
