"""The section ``reward`` of a recipe as the settings of scorers."""

from pathlib import Path
from typing import Any

from aworld_train.errors import RewardError
from aworld_train.recipe.locate import shipped_file
from aworld_train.recipe.paths import whole_path
from aworld_train.recipe.schema import CompositeSection, Recipe
from aworld_train.reward.settings import (
    CompositeSettings,
    JudgeModel,
    JudgeSettings,
    RewardSettings,
    ToolSettings,
)


def reward_settings(recipe: Recipe) -> RewardSettings:
    reward, judge = recipe.reward, recipe.reward.judge
    judge_values: dict[str, Any] = {
        "models": tuple(JudgeModel(name=name, **recipe.endpoints[name]) for name in judge.models),
        "cache": whole_path(judge.cache) if judge.cache else None,
        "prompt": _text(judge.prompt) if judge.prompt else None,
    }
    return RewardSettings(
        scorer=reward.scorer,
        answer_schema=reward.answer_schema,
        timeout=reward.timeout,
        judge=JudgeSettings(**(vars(judge) | judge_values)),
        composite=composite_settings(reward.composite),
        tools=ToolSettings(recipe.env.url, tool=reward.code_tool, servers=tuple(recipe.env.servers)),
    )


def composite_settings(section: CompositeSection) -> CompositeSettings:
    values: dict[str, Any] = {"weights": dict(section.weights), "gates": tuple(section.gates)}
    return CompositeSettings(**(vars(section) | values))


def _text(file: str) -> str:
    from aworld_train.reward.judge.question import template_fault

    try:
        text = Path(shipped_file(file)).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        raise RewardError(
            f"The judge's instructions (reward.judge.prompt), {file}, cannot be read: {error}."
        ) from error
    if not text.strip():
        raise RewardError(
            f"The judge's instructions (reward.judge.prompt): {file} says nothing. Leave the key out for the package's "
            "own."
        )
    if fault := template_fault(text):
        raise RewardError(
            f"The judge's instructions (reward.judge.prompt): {file} {fault}. Add it, or leave all out."
        )
    return text
