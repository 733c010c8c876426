"""Checks that a recipe can score: every scorer and schema that it or its tasks name exists and is complete."""

from collections.abc import Iterable

from aworld_train.api_keys import key_in
from aworld_train.errors import RewardError
from aworld_train.recipe.reward_settings import reward_settings
from aworld_train.recipe.schema import Recipe
from aworld_train.reward.composite import check_composite
from aworld_train.reward.extraction import check_schema_name
from aworld_train.reward.loading import load_reward
from aworld_train.reward.scorers import CODE_TESTS, find_scorer
from aworld_train.reward.settings import JudgeSettings


def check_rewards(recipe: Recipe, scorers: Iterable[str] = (), schemas: Iterable[str] = ()) -> None:
    """Check that answers can be scored, also by the scorers and answer schemas that tasks name."""
    if recipe.reward.function:
        load_reward(recipe.reward.function)
        return
    settings = reward_settings(recipe)
    names = settings.scorers_asked(scorers)
    if "composite" in names:
        check_composite(settings.composite)
    for name in sorted(names):
        find_scorer(name)
    for schema in sorted({settings.answer_schema} if settings.answer_schema else {*schemas}):
        check_schema_name(schema)
    if "llm_judge" in names:
        _check_judges(settings.judge)


def reward_remarks(recipe: Recipe, scorers: Iterable[str] = ()) -> list[str]:
    if recipe.reward.function or "contains" not in reward_settings(recipe).scorers_asked(scorers):
        return []
    return [
        "The scorer contains gives 1 to an answer that lists all candidates, and training finds that out: exact, f1 or "
        "llm_judge do not."
    ]


def runs_code(recipe: Recipe, scorers: Iterable[str | None] = ()) -> bool:
    """Whether a run of the recipe scores answers by running them; ``scorers`` are those that tasks name."""
    return not recipe.reward.function and CODE_TESTS in reward_settings(recipe).scorers_asked(scorers)


def _check_judges(judge: JudgeSettings) -> None:
    if not judge.models:
        raise RewardError(
            "A scorer is llm_judge, and nobody judges: describe a language model under `endpoints` and name it in "
            "`reward.judge.models`."
        )
    for model in judge.models:
        if model.key_variable and not key_in(model.key_variable):
            raise RewardError(
                f"The judge {model.name} needs its key in {model.key_variable}, which is not set: every verdict would "
                "be missing."
            )
