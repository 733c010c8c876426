"""The settings of scorers that a recipe describes."""

from pathlib import Path

from aworld_train.errors import RewardError
from aworld_train.recipe.schema import Recipe
from aworld_train.reward.settings import (
    CompositeSettings,
    JudgeModel,
    JudgeSettings,
    RewardSettings,
    ToolSettings,
)


def reward_settings(recipe: Recipe, *, tools_url: str | None = None) -> RewardSettings:
    """How a recipe scores.

    Args:
        recipe: A checked recipe.
        tools_url: MCP endpoint of the tool environment, where there is one.

    Raises:
        RewardError: The file with the judge's instructions cannot be read.
    """
    reward, judge, composite = recipe.reward, recipe.reward.judge, recipe.reward.composite
    return RewardSettings(
        scorer=reward.scorer,
        answer_schema=reward.answer_schema,
        timeout=reward.timeout,
        judge=JudgeSettings(
            models=tuple(JudgeModel(name=name, **recipe.endpoints[name]) for name in judge.models),
            concurrency=judge.concurrency,
            per_minute=judge.per_minute,
            attempts=judge.attempts,
            cache=str(Path(judge.cache).expanduser().resolve()) if judge.cache else None,
            prompt=_text(judge.prompt) if judge.prompt else None,
        ),
        composite=CompositeSettings(
            correct=composite.correct,
            weights=dict(composite.weights),
            gates=tuple(composite.gates),
            most_chars=composite.most_chars,
            most_calls=composite.most_calls,
        ),
        tools=ToolSettings(tools_url, tool=reward.code_tool, servers=tuple(recipe.env.servers))
        if tools_url is not None
        else None,
    )


def _text(file: str) -> str:
    try:
        return Path(file).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        raise RewardError(
            f"The judge's instructions (reward.judge.prompt) cannot be read: {error}."
        ) from error
