"""The teacher of `trainer.method: distill`, found on this machine and compared with its student before a run.

A teacher scores the student's own tokens, so each of them has to be the same text to both; tokens that the teacher has
beside them are never asked for.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from aworld_train.adapter.base import TrainingFramework, find, model_directory
from aworld_train.errors import AworldTrainError, ModelError, RecipeError, suggestion
from aworld_train.model.check import check_model
from aworld_train.model.files import is_hub_name, local_folder, vocabulary_of
from aworld_train.recipe.env_text import EnvText, shown
from aworld_train.recipe.interpolation import escape
from aworld_train.recipe.schema import Recipe
from aworld_train.recipe.tree import KeyPath
from aworld_train.training.run_models import RUNS, with_run_model

_KEY = "`distill.teacher`"
_MAX_SHOWN = 3


def teacher_faults(recipe: Recipe, runs: Path = RUNS) -> Iterator[tuple[KeyPath, str]]:
    if recipe.teacher is None:
        return
    with suppress(AworldTrainError):  # which the check of `model.path` names
        recipe = with_run_model(recipe, runs)
    try:
        with_teacher(recipe, find(recipe.trainer.framework))
    except RecipeError as error:
        yield ("distill", "teacher"), error.message


def with_teacher(recipe: Recipe, framework: TrainingFramework) -> Recipe:
    """The recipe with its teacher's model directory in place of a run or a checkpoint.

    Raises RecipeError for a teacher that is not there, or with other tokens than the student.
    """
    if recipe.teacher is None:
        return recipe
    recipe = replace(recipe, distill=replace(recipe.distill, teacher=_directory(recipe.teacher, framework)))
    check_tokens(recipe)
    return recipe


def check_tokens(recipe: Recipe) -> None:
    """Compare the vocabularies; one of the hub that is not on this machine yet is compared once it is."""
    student, teacher = (local_folder(path) for path in (recipe.model.location, recipe.teacher))
    if student is None or teacher is None:
        return
    own, others = vocabulary_of(student), vocabulary_of(teacher)
    if own is None or others is None:
        raise RecipeError(
            f"{_KEY}: the vocabulary of {student if own is None else teacher} cannot be read, for it has no "
            "tokenizer.json; save its tokenizer there with AutoTokenizer.from_pretrained(...).save_pretrained(...)."
        )
    if different := _different(own, others):
        raise RecipeError(
            f"{_KEY}: {shown(recipe.teacher or '')} has other tokens than the model that it teaches "
            f"({shown(recipe.model.location or '')}): {different}. It scores the student's tokens by their numbers, so "
            "take a teacher of the same family."
        )


def _directory(teacher: str, framework: TrainingFramework) -> str:
    folder = Path(teacher).expanduser()
    if not folder.is_dir():
        if is_hub_name(teacher) and folder.parent != RUNS and not folder.parent.is_dir():
            return teacher
        raise RecipeError(
            f"{_KEY}: no such directory: {shown(teacher)}."
            + suggestion(teacher, map(str, folder.parent.glob("*")))
            + " Give a model, a checkpoint or the folder of a run that has a checkpoint; paths are relative to the "
            "current folder."
        )
    try:
        model = model_directory(folder, framework)
        check_model(str(model))
    except ModelError as error:
        raise RecipeError(f"{_KEY}: {error.message}") from error
    inside = str(model.relative_to(folder))
    if isinstance(teacher, EnvText):
        return EnvText(f"{teacher}/{inside}", f"{teacher.reference}/{escape(inside)}", teacher.lookups)
    return str(model)


def _different(own: Mapping[str, int], others: Mapping[str, int]) -> str:
    differing = [token for token, number in own.items() if others.get(token) != number]
    examples = ", ".join(
        f"{token!r} is {own[token]} to one and {others.get(token, 'nothing')} to the other"
        for token in differing[:_MAX_SHOWN]
    )
    return f"{len(differing)} of {len(own)} differ ({examples})" if differing else ""
