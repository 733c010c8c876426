"""Scores an episode with the task's scorer or the recipe's reward function, and the facts of the episode.

``reward.yaml`` in the run folder says how a run scores. A score that cannot be computed affects only its own episode:
``EpisodeScore.value`` is None, and the caller drops the episode.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from aworld_train.adapter.episodes.paths import absolute_function
from aworld_train.episode.score import ScoreOutcome, ScoreResult
from aworld_train.recipe.interpolation import resolved
from aworld_train.recipe.output import written
from aworld_train.recipe.reward_settings import reward_settings
from aworld_train.recipe.schema import Recipe
from aworld_train.reward.assistant_text import without_tool_text
from aworld_train.reward.reward_function import score_by_function
from aworld_train.reward.scoring import score
from aworld_train.reward.settings import RewardSettings


def reward_plan(recipe: Recipe) -> dict[str, Any]:
    settings = reward_settings(recipe)
    settings = replace(
        settings,
        scorer=_absolute(settings.scorer),
        composite=replace(settings.composite, correct=_absolute(settings.composite.correct)),
    )
    # Tasks may name files relative to the directory of the user.
    plan: dict[str, Any] = written(
        {"function": _absolute(recipe.reward.function), "directory": str(Path.cwd()), **settings.to_plain()}
    )
    return plan


def _absolute(spec: str | None, directory: str = "") -> str | None:
    return absolute_function(spec, directory) if spec else None


@dataclass(frozen=True)
class _Plan:
    """How a run scores; ``directory`` is the base of relative paths in the scorers that tasks name."""

    function: str | None
    directory: str
    settings: RewardSettings


@lru_cache(maxsize=4)
def _plan(file: str) -> _Plan:
    data = resolved(yaml.safe_load(Path(file).read_text(encoding="utf-8")))
    return _Plan(data.pop("function"), data.pop("directory"), RewardSettings.from_plain(data))


@dataclass(frozen=True)
class EpisodeScore:
    result: ScoreResult
    tool_calls: int
    tool_errors: int

    @property
    def value(self) -> float | None:
        return self.result.score

    @property
    def accuracy(self) -> float | None:
        """Correctness as a number: the part ``acc`` or ``correct`` if the scorer has one, else the score."""
        parts = self.result.parts
        return parts.get("acc", parts.get("correct", self.value))

    def figures(self) -> dict[str, float]:
        """The numbers that frameworks put into their metrics, rewards of single agents (``score/<agent>``) included."""
        if self.value is None or self.accuracy is None:
            return {}
        return {
            "score": self.value,
            "acc": float(self.accuracy),
            "answered": float(self.result.outcome is not ScoreOutcome.no_answer),
            "used_tool": float(self.tool_calls > 0),
            "tool_calls": float(self.tool_calls),
            "tool_errors": float(self.tool_errors),
            **{name: part for name, part in self.result.parts.items() if name.startswith("score/")},
        }


async def score_episode(
    file: str,
    *,
    data_source: str,
    response: str,
    ground_truth: str,
    extra_info: Mapping[str, Any],
    **more: Any,
) -> EpisodeScore:
    """Score one episode by the plan in a run's ``reward.yaml``; ``extra_info`` is the row's, with ``episode_facts``."""
    plan = _plan(file)
    if plan.function:
        result = await score_by_function(
            plan.function,
            plan.settings,
            data_source=data_source,
            solution_str=response,
            ground_truth=ground_truth,
            extra_info=extra_info,
            **more,
        )
    else:
        text = extra_info.get("assistant_text")
        result = await score(
            text if isinstance(text, str) else without_tool_text(response),
            ground_truth=ground_truth,
            scorer=_absolute(extra_info.get("scorer"), plan.directory),
            answer_schema=extra_info.get("answer_schema"),
            query=str(extra_info.get("query") or extra_info.get("question") or ""),
            info=extra_info,
            episode=extra_info,
            settings=plan.settings,
        )
    return EpisodeScore(
        result,
        tool_calls=int(extra_info.get("tool_call_count") or 0),
        tool_errors=int(extra_info.get("tool_error_count") or 0),
    )
