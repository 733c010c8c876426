"""Paths in a recipe as a run's processes find them, which do not work in the user's directory."""

from pathlib import Path

from aworld_train.recipe.env_text import EnvText
from aworld_train.recipe.paths import whole_reference


def absolute_path(path: str | None) -> str | None:
    """The whole path of what exists; anything else, such as the name of a model on the hub, stays as it is."""
    if not path:
        return path
    expanded = Path(path).expanduser()
    if not expanded.exists():
        return path
    return whole_reference(path) if isinstance(path, EnvText) else str(expanded.resolve())


def absolute_argument(part: str) -> str:
    """A part of a command with its whole path where it names something that exists here; a plain word stays as it is.

    Links are not followed: the interpreter of a virtual environment is one.
    """
    expanded = Path(part).expanduser()
    named = "/" in part or bool(expanded.suffix)
    if not (named and expanded.exists()):
        return part
    return whole_reference(part) if isinstance(part, EnvText) else str(expanded.absolute())


def absolute_function(spec: str, directory: str = "") -> str:
    """``file.py:name`` with the whole path of the file, seen from ``directory``; ``module:name`` as it is."""
    origin, _, name = spec.rpartition(":")
    if isinstance(spec, EnvText):
        return whole_reference(spec, directory) if origin.endswith(".py") else spec
    return f"{(directory / Path(origin).expanduser()).resolve()}:{name}" if origin.endswith(".py") else spec
