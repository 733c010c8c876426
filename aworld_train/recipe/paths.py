"""Paths in a recipe as processes find them that do not run where the user is.

A path that the environment gave stays ``EnvText``: its reference is made whole, and its value is written nowhere.
"""

from pathlib import Path

from aworld_train.errors import RecipeError
from aworld_train.recipe.env_text import EnvText
from aworld_train.recipe.interpolation import escape


def whole_path(text: str) -> str:
    """The absolute path; whether anything is there does not matter."""
    return whole_reference(text) if isinstance(text, EnvText) else str(Path(text).expanduser().resolve())


def whole_reference(text: EnvText, folder: str = "") -> EnvText:
    """The path as it is found from anywhere: what is relative counts from ``folder``, by default where we are.

    Raises:
        RecipeError: Its variable holds a path with ``~``, which nothing expands once it is written.
    """
    if text.startswith("~"):
        home = text.partition("/")[0]
        if not text.reference.startswith(home):
            raise RecipeError(
                f"{text.reference} gives a path that begins with ~, which only a shell expands: export the whole path"
            )
        expanded = str(Path(home).expanduser())
        return EnvText(
            expanded + text.removeprefix(home),
            escape(expanded) + text.reference.removeprefix(home),
            text.lookups,
        )
    if text.startswith("/"):
        return text
    base = f"{(Path.cwd() / folder).resolve()}/"
    return EnvText(base + text, escape(base) + text.reference, text.lookups)
