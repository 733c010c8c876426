"""The section ``reward`` of a recipe as the settings of scorers."""

from pathlib import Path

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
    return RewardSettings(
        scorer=reward.scorer,
        answer_schema=reward.answer_schema,
        timeout=reward.timeout,
        judge=JudgeSettings(
            models=tuple(JudgeModel(name=name, **recipe.endpoints[name]) for name in judge.models),
            concurrency=judge.concurrency,
            per_minute=judge.per_minute,
            attempts=judge.attempts,
            cache=whole_path(judge.cache) if judge.cache else None,
            prompt=_text(judge.prompt) if judge.prompt else None,
        ),
        composite=composite_settings(reward.composite),
        tools=ToolSettings(recipe.env.url, tool=reward.code_tool, servers=tuple(recipe.env.servers)),
    )


def composite_settings(section: CompositeSection) -> CompositeSettings:
    return CompositeSettings(
        correct=section.correct,
        weights=dict(section.weights),
        gates=tuple(section.gates),
        max_chars=section.max_chars,
        max_calls=section.max_calls,
    )


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
