"""Makes the paths in a recipe absolute, for processes that do not run in the user's directory.

A path from the environment stays an ``EnvText``: its reference is made absolute too, so that files hold no value.
"""

from pathlib import Path

from aworld_train.errors import RecipeError
from aworld_train.recipe.env_text import EnvText
from aworld_train.recipe.interpolation import escape


def whole_path(text: str) -> str:
    return whole_reference(text) if isinstance(text, EnvText) else str(Path(text).expanduser().resolve())


def whole_reference(text: EnvText, folder: str = "") -> EnvText:
    """The absolute path; a relative one starts from ``folder``, by default the working directory."""
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
